"""Quantised, sparse and nested tensors are refused by name: docs/coming-from-a-tutorial.md says what to use."""

from types import SimpleNamespace

import muladd
import pytest
import torch
import transformer_ops
from opwheel.dispatch import Operator, Rows, register_python
from opwheel.registry import NoKernelError

DENSE, ROW = torch.arange(1.0, 33).view(4, 8), torch.ones(8)

# The tensors, and what their refusal says.
QUANTIZED = {
    "torch.quint8": lambda: torch.quantize_per_tensor(DENSE, 0.5, 3, torch.quint8),
    "torch.qint32": lambda: torch.quantize_per_tensor(DENSE, 0.5, 3, torch.qint32),
    "torch.qint8": lambda: torch.quantize_per_channel(DENSE, torch.ones(4), torch.zeros(4).long(), 0, torch.qint8),
}
SPARSE = {
    "torch.sparse_coo": DENSE.to_sparse,
    "torch.sparse_csr": DENSE.to_sparse_csr,
    "torch.sparse_csc": DENSE.to_sparse_csc,
    "torch.sparse_bsr": lambda: DENSE.to_sparse_bsr((2, 2)),
    "torch.sparse_bsc": lambda: DENSE.to_sparse_bsc((2, 2)),
    "torch._mkldnn": DENSE.to_mkldnn,
}
NESTED = {layout: [torch.ones(2, 8), torch.ones(3, 8)] for layout in (torch.strided, torch.jagged)}

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # quantised, sparse and nested tensors are announced so


@pytest.fixture(scope="module")
def scaled():
    """An operator of rows whose kernel is a function in Python."""
    functions = register_python(
        "waves_special",
        {"scaled(Tensor x, Tensor? w=None) -> Tensor": lambda x, w=None: x if w is None else x * w},
        [Operator("scaled", reference=lambda x, w=None: x * 1 if w is None else x * w, rule=Rows(x=1))],
    )
    return functions.scaled if isinstance(functions, SimpleNamespace) else torch.ops.waves_special.scaled


# By library and the argument that is special.
def calls(scaled):
    return {
        ("add", "a"): lambda x: muladd.add(x, ROW),
        ("fma", "b"): lambda x: muladd.fma(DENSE, x, ROW),
        ("rms_norm", "x"): lambda x: transformer_ops.rms_norm(x, ROW),
        ("rms_norm", "weight"): lambda x: transformer_ops.rms_norm(DENSE, x),
        ("scaled", "x"): lambda x: scaled(x, ROW),
        ("scaled", "w"): lambda x: scaled(DENSE, x),
    }


CALLS = list(calls(None))


@pytest.mark.parametrize("call", CALLS, ids="-".join)
@pytest.mark.parametrize("dtype", QUANTIZED)
def test_quantized(scaled, call, dtype, monkeypatch):
    operator, argument = call
    given = QUANTIZED[dtype]()
    for library in (muladd.library, transformer_ops.library):  # nor does the reference compute with them
        monkeypatch.setattr(library, "policy", library.policy.replaced(fallback="reference"))
    with pytest.raises(NoKernelError) as refused:
        calls(scaled)[call](given)
    assert refused.value.code == "OPWHEEL-E001"
    words = f"::{operator} has no kernel for cpu tensors that are quantised, and argument '{argument}' is {dtype}"
    assert words in str(refused.value)
    assert "; convert it with .dequantize()" in str(refused.value)


@pytest.mark.parametrize("call", CALLS, ids="-".join)
@pytest.mark.parametrize("layout", SPARSE)
@pytest.mark.parametrize("requires_grad", [False, True], ids=["", "grad"])
def test_sparse(scaled, call, layout, requires_grad):
    given = SPARSE[layout]().detach()
    with pytest.raises(RuntimeError) as refused:
        calls(scaled)[call](given.requires_grad_(requires_grad))
    message = str(refused.value)
    assert f"::{call[0]} has no kernel for cpu tensors" in message
    assert f"of layout {layout}" in message or "that are not strided (sparse, mkldnn)" in message
    assert "convert them with .to_dense() (OPWHEEL-E001)" in message


@pytest.mark.parametrize("call", CALLS, ids="-".join)
@pytest.mark.parametrize("layout", NESTED, ids=str)
@pytest.mark.parametrize("requires_grad", [False, True], ids=["", "grad"])
def test_nested(scaled, call, layout, requires_grad):
    operator, argument = call
    given = torch.nested.nested_tensor(NESTED[layout], layout=layout, requires_grad=requires_grad)
    with pytest.raises(RuntimeError) as refused:
        calls(scaled)[call](given)
    assert f"{operator}: argument '{argument}' is a nested tensor" in str(refused.value)
    assert "Pass its .values(), call it for each of .unbind()" in str(refused.value)


def test_what_the_page_says_instead():
    """The same numbers, by dequantising, of the dense tensor, and row for row."""
    quantized = QUANTIZED["torch.quint8"]()
    by_hand = (quantized.int_repr().float() - quantized.q_zero_point()) * quantized.q_scale()
    assert torch.equal(muladd.add(quantized.dequantize(), ROW), by_hand + 1)
    assert torch.equal(muladd.add(DENSE.to_sparse().to_dense(), ROW), DENSE + 1)
    jagged = torch.nested.nested_tensor(NESTED[torch.jagged], layout=torch.jagged)
    values = transformer_ops.rms_norm(jagged.values(), ROW)
    again = torch.nested.nested_tensor_from_jagged(values, jagged.offsets())
    for row, alone in zip(again.unbind(), jagged.unbind(), strict=True):
        assert torch.equal(row, transformer_ops.rms_norm(alone, ROW))
