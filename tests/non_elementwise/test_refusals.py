"""Calls that are refused for values in their tensors, in processes of their own."""

import importlib
from types import SimpleNamespace

import pytest
import torch
from opwheel.dispatch import Operator, overloads_of, register_python
from opwheel_tools import ErrorSample, OpInfo, Sample
from opwheel_tools.opinfo.lookup import register_op_infos
from opwheel_tools.testing import checks, refusals

PACKAGE = """
import os
from types import SimpleNamespace

import torch
from opwheel.dispatch import Operator, overloads_of, register_python
from opwheel_tools import ErrorSample, OpInfo, Sample
from opwheel_tools.opinfo.lookup import register_op_infos


def refuses(x):
    if bool((x < 0).any()):
        raise IndexError("a negative number")
    return x.sqrt()


def samples(device, dtype, requires_grad):
    yield Sample(torch.ones(3, device=device, dtype=dtype))


def errors(device):
    yield ErrorSample(Sample(torch.ones(2, device=device)), RuntimeError)  # not refused, and none of this' business
    yield ErrorSample(Sample(-torch.ones(2, device=device)), IndexError, by_values=True)


KERNELS = {"refuses": refuses, "computes": torch.sqrt, "ends": lambda x: os.abort()}
register_python(
    "waves_refusing",
    {f"{name}(Tensor x) -> Tensor": kernel for name, kernel in KERNELS.items()},
    [Operator(name, reference=torch.sqrt) for name in KERNELS],
)
register_op_infos("waves_refusing", {name: OpInfo(samples=samples, errors=errors) for name in KERNELS})
library = SimpleNamespace(overloads=overloads_of(torch.library.Library("waves_refusing", "FRAGMENT")))
"""


@pytest.fixture(scope="module")
def overloads(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusing")
    (folder / "waves_refusing.py").write_text(PACKAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder))
        yield importlib.import_module("waves_refusing").library.overloads


def test_a_refused_call(overloads):
    refusals.check("waves_refusing", "cpu", overloads["refuses"])


@pytest.mark.parametrize(("name", "how"), [("computes", "computes something"), ("ends", "killed by SIGABRT")])
def test_a_call_that_is_not_refused(overloads, name, how):
    with pytest.raises(AssertionError, match=rf"a call that must be refused {how}: \(float32\[2\]\)"):
        refusals.check("waves_refusing", "cpu", overloads[name])


def test_an_accelerator_is_not_asked_to_refuse_values():
    """It could do nothing more for this process. What shapes and dtypes say it must refuse."""
    seen = []

    def pick(x, index):
        seen.append(index.dtype)
        if index.dtype is not torch.int64:
            raise RuntimeError("argument 'index' has another dtype than int64")
        if index.max() >= x.shape[0]:
            pytest.fail("a device-side assertion")
        return x[index]

    def reference(x, index):
        if index.dtype is not torch.int64:
            raise RuntimeError("argument 'index' has another dtype than int64")
        return x[index]

    def samples(device, dtype, requires_grad):
        yield Sample(torch.randn(3, 2, dtype=dtype), torch.tensor([2, 0]))

    def errors(device):
        yield ErrorSample(Sample(torch.randn(3, 2), torch.tensor([3])), IndexError, by_values=True)

    schema = "pick(Tensor x, Tensor index) -> Tensor"
    register_python("waves_pick", {schema: pick}, [Operator("pick", reference=reference)])
    register_op_infos("waves_pick", {"pick": OpInfo(samples=samples, errors=errors)})
    (overload,) = overloads_of(torch.library.Library("waves_pick", "FRAGMENT")).values()
    checks.CHECKS["errors"](overload, checks.Samples(overload, 0, torch.float32, SimpleNamespace(type="cuda")))
    assert set(seen) == {torch.int32}
    with pytest.raises(pytest.fail.Exception):
        checks.CHECKS["errors"](overload, checks.Samples(overload, 0, torch.float32, torch.device("cpu")))


def test_an_accelerator_is_not_asked_for_a_part_of_a_table(monkeypatch):
    """Of a table without its first dimension a row is left, in which there is no element 4."""
    on_cpu = []

    def copied(x):
        on_cpu.append(x.clone())
        return on_cpu[-1]

    def pick(table, index):
        if table.shape[0] < 5 and not any(index is one for one in on_cpu):  # element 4 is asked for
            pytest.fail("a device-side assertion")
        return table[index]

    def samples(device, dtype, requires_grad):
        yield Sample(torch.randn(5, 3, dtype=dtype), torch.tensor([4, 0]))

    schema = "pick(Tensor table, Tensor index) -> Tensor"
    register_python("waves_table", {schema: pick}, [Operator("pick", reference=pick)])
    register_op_infos("waves_table", {"pick": OpInfo(samples=samples)})
    (overload,) = overloads_of(torch.library.Library("waves_table", "FRAGMENT")).values()
    monkeypatch.setattr(torch.Tensor, "cpu", copied)
    checks.CHECKS["vmap"](overload, checks.Samples(overload, 0, torch.float64, torch.device("cpu")))
    assert on_cpu


def test_a_reference_that_computes_what_is_refused():
    """It computes in the place of kernels that are not installed."""

    def of_two(x):
        if x.dim() != 2:
            raise RuntimeError("argument 'x' must have 2 dimensions")
        return x.sqrt()

    def samples(device, dtype, requires_grad):
        yield Sample(torch.ones(3, 2, dtype=dtype))

    def errors(device):
        yield ErrorSample(Sample(torch.ones(2)), RuntimeError)

    names = {"right": of_two, "wrong": torch.sqrt}
    register_python(
        "waves_lenient",
        {f"{name}(Tensor x) -> Tensor": of_two for name in names},
        [Operator(name, reference=reference) for name, reference in names.items()],
    )
    register_op_infos("waves_lenient", {name: OpInfo(samples=samples, errors=errors) for name in names})
    overloads = overloads_of(torch.library.Library("waves_lenient", "FRAGMENT"))

    def check(name):
        of_float32 = checks.Samples(overloads[name], 0, torch.float32, torch.device("cpu"))
        checks.CHECKS["errors"](overloads[name], of_float32)

    check("right")
    with pytest.raises(AssertionError, match=r"\(float32\[2\]\) is declared to be refused, and the reference computes"):
        check("wrong")
