"""Rows whose elements are apart, as columns of memory: the bits of contiguous rows, and each result at its place."""

import pytest
import torch
import transformer_ops

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# (rows, width) as the last dimensions, whose elements are apart in memory.
LAYOUTS = {
    "a matrix": lambda make: make(37, 75).t(),
    "short rows": lambda make: make(3, 1100).t(),
    "few rows": lambda make: make(300, 5).t(),
    "many rows": lambda make: make(50, 300).t(),
    "long rows": lambda make: make(1030, 20).t(),
    "with gaps": lambda make: make(20, 90)[:, 3:81].t(),
    "a matrix for each batch": lambda make: make(2, 33, 40).transpose(1, 2),
    "channels first": lambda make: make(2, 19, 5, 7).permute(0, 2, 3, 1),
    "batches of batches": lambda make: make(2, 3, 17, 50).transpose(2, 3),
    "one matrix for all": lambda make: make(17, 33).t().expand(3, 33, 17),
    "batches apart": lambda make: make(5, 17, 33)[::2].transpose(1, 2),
    "every other row": lambda make: make(17, 66)[:, ::2].t(),
    "every other element": lambda make: make(37, 150)[:, ::2],
    "every other element of many rows": lambda make: make(300, 103)[:, 1:99:2],
    "every third element": lambda make: make(2, 5, 3 * 33)[..., ::3],
    "every other element of rows apart": lambda make: make(2, 9, 80)[:, ::3, 4:70:2],
    "one row for all": lambda make: make(66)[::2].expand(7, 33),
    "one element for all": lambda make: make(7, 1).expand(7, 33),
    "rows of one element": lambda make: make(300, 4)[:, :1],
    "every other row of one element": lambda make: make(2 * 2100, 1)[::2],
    "rows of one element for all": lambda make: make(1, 1).expand(2100, 1),
    "in another order": lambda make: make(3, 17, 5, 4).permute(2, 0, 3, 1),
}
OPERATORS = {
    "rms_norm": transformer_ops.rms_norm,
    "layer_norm": lambda x, weight: transformer_ops.layer_norm(x, weight, weight),
    "softmax": lambda x, weight: transformer_ops.softmax(x),
    "log_softmax": lambda x, weight: transformer_ops.log_softmax(x),
    "fused_add_rms_norm": lambda x, weight: transformer_ops.fused_add_rms_norm(x, x.flip(-1), weight)[0],
    "fused_add_rms_norm of x": lambda x, weight: transformer_ops.fused_add_rms_norm(x, -x.contiguous(), weight)[1],
    "fused_add_rms_norm of a residual": lambda x, weight: transformer_ops.fused_add_rms_norm(x.contiguous(), x, weight)[
        0
    ],
    "quantize_rowwise": lambda x, weight: transformer_ops.quantize_rowwise(x)[0],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bits_of_contiguous_rows(layout, dtype):
    x = LAYOUTS[layout](lambda *shape: torch.randn(shape).to(dtype))
    assert not x.is_contiguous()
    weight = torch.randn(x.shape[-1]).to(dtype)
    for name, operator in OPERATORS.items():
        found = operator(x, weight)
        assert found.is_contiguous(), name
        assert torch.equal(found, operator(x.contiguous(), weight)), name
    if x.dim() == 2:
        target = torch.arange(len(x)) % x.shape[1]
        found, expected = (transformer_ops.cross_entropy(one, target) for one in (x, x.contiguous()))
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("gap", [0, 3])
def test_every_other_element_of_every_width(gap, dtype):
    """In the last vector of a row, or of all of them, there are elements of every number."""
    for width in range(2, 67):
        memory = torch.randn(5 * (2 * width + gap)).to(dtype)
        x = memory[: 5 * (2 * width + gap) - gap - 1].as_strided((5, width), (2 * width + gap, 2))
        assert torch.equal(transformer_ops.softmax(x), transformer_ops.softmax(x.contiguous())), width


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "for all" not in name])
def test_what_is_written(layout, dtype):
    """In place, and into a given tensor; what lies between its elements stays."""
    x = LAYOUTS[layout](lambda *shape: torch.randn(shape).to(dtype))
    weight = torch.randn(x.shape[-1]).to(dtype)
    storage = torch.full((x.untyped_storage().nbytes() // x.itemsize,), 7.0).to(dtype)

    def alike(values):
        memory = storage.clone()
        made = memory.as_strided(x.shape, x.stride(), x.storage_offset())
        made.copy_(values)
        return made, memory

    given, memory = alike(x)
    residual, of_residual = alike(x.flip(0))
    y, total = x.contiguous(), x.flip(0).contiguous()
    transformer_ops.fused_add_rms_norm_(given, residual, weight)
    transformer_ops.fused_add_rms_norm_(y, total, weight)
    assert torch.equal(given, y)
    assert torch.equal(residual, total)
    assert torch.equal(memory, alike(y)[1])
    assert torch.equal(of_residual, alike(total)[1])
    out, memory = alike(torch.zeros(()))
    transformer_ops.rms_norm(x, weight, out=out)
    assert torch.equal(out, transformer_ops.rms_norm(x.contiguous(), weight))
    assert torch.equal(memory, alike(out)[1])
