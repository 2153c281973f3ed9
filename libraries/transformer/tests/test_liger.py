"""transformer_ops.liger on the installed liger-kernel: what is replaced, what is left, and that it is undone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import Any

import pytest
import torch
import transformer_ops
from torch.testing import assert_close

pytest.importorskip("liger_kernel", reason="liger-kernel is not installed")
pytest.importorskip("triton", reason="liger-kernel imports triton, which is not installed")

import liger_kernel.ops as liger_ops
import liger_kernel.transformers as liger
from liger_kernel.transformers import functional
from transformer_ops import liger as adapter


def names() -> dict[tuple[str, str], int]:
    """What every name in Liger-Kernel's modules stands for."""
    modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "liger_kernel"}
    return {(name, key): id(value) for name, module in modules.items() for key, value in vars(module).items()}


@pytest.fixture
def installed() -> Iterator[adapter.Installation]:
    before, attributes = names(), dict(vars(liger_ops.LigerRMSNormFunction))
    yield adapter.install()
    adapter.uninstall()
    after = names()
    assert {name: after[name] for name in before} == before  # torch.compile adds names of its own
    assert vars(liger_ops.LigerRMSNormFunction) == attributes


def test_what_was_replaced_is_said(installed: adapter.Installation) -> None:
    assert installed.replaced["LigerRMSNormFunction"] == "rms_norm on cpu"
    assert len(installed.replaced) == 9
    assert installed.not_replaced["LigerSparsemaxFunction"] == "transformer_ops has no such operator"
    assert "LigerRopeFunction: rope on cpu" in str(installed).splitlines()
    assert adapter.install() is installed


def test_several_threads_install_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before, check = names(), adapter._check_version
    monkeypatch.setattr(adapter, "_check_version", lambda: (time.sleep(0.05), check()))  # the others come meanwhile
    with ThreadPoolExecutor(4) as pool:
        done = [one.result() for one in [pool.submit(adapter.install) for _ in range(4)]]
    adapter.uninstall()
    assert all(one is done[0] for one in done)
    after = names()
    assert {name: after[name] for name in before} == before


def test_modules_that_were_imported_before_compute_by_ours(installed: adapter.Installation) -> None:
    norm = liger.LigerRMSNorm(32)
    x = torch.randn(5, 32, requires_grad=True)
    torch.nn.init.normal_(norm.weight)
    expected = torch.nn.functional.rms_norm(x, (32,), norm.weight, 1e-6)
    y = norm(x)
    assert_close(y, expected)
    given = torch.autograd.grad(y.square().sum(), [x, norm.weight])
    assert_close(given, torch.autograd.grad(expected.square().sum(), [x, norm.weight]))


def test_every_function_of_theirs(installed: adapter.Installation) -> None:
    F = torch.nn.functional  # noqa: N806
    x, other, weight, bias = torch.randn(6, 16), torch.randn(6, 16), torch.randn(16), torch.randn(16)
    logits, target, vocabulary = torch.randn(6, 9), torch.randint(0, 9, (6,)), torch.randn(9, 16)
    assert_close(functional.liger_swiglu(x, other), F.silu(x) * other)
    assert_close(functional.liger_geglu(x, other), F.gelu(x, approximate="tanh") * other)
    assert_close(functional.liger_softmax(x), torch.softmax(x, -1))
    assert_close(functional.liger_layer_norm(x, weight, bias, 1e-5), F.layer_norm(x, (16,), weight, bias))
    assert_close(functional.liger_cross_entropy(logits, target), F.cross_entropy(logits, target))
    assert functional.liger_cross_entropy(logits.bfloat16(), target).dtype == torch.bfloat16
    total = functional.liger_fused_add_rms_norm(x, other, weight, 1e-6)
    assert_close(total, (F.rms_norm(x + other, (16,), weight, 1e-6), x + other))
    loss = functional.liger_fused_linear_cross_entropy(x, vocabulary, target, reduction="sum")
    assert_close(loss, F.cross_entropy(x @ vocabulary.T, target, reduction="sum"))


@pytest.mark.parametrize(("columns", "rotary_dim"), [(8, None), (4, None), (4, 8), (2, 4)])
def test_rope_of_a_part_of_each_head(installed: adapter.Installation, columns: int, rotary_dim: int | None) -> None:
    q, k = torch.randn(2, 3, 5, 8), torch.randn(2, 1, 5, 8)
    width = rotary_dim or columns
    angles = torch.randn(1, 5, width // 2).repeat(1, 1, 2)
    cos, sin = angles.cos(), angles.sin()
    got = functional.liger_rope(q, k, cos[..., :columns], sin[..., :columns], rotary_dim=rotary_dim)
    for x, y in zip((q, k), got, strict=True):
        u, v = x[..., :width].chunk(2, -1)
        turned = x[..., :width] * cos + torch.cat((-v, u), -1) * sin
        assert_close(y, torch.cat((turned, x[..., width:]), -1))


@pytest.mark.slow
def test_torch_compile_sees_ours(installed: adapter.Installation) -> None:
    norm = liger.LigerRMSNorm(32)
    x = torch.randn(5, 32)
    assert_close(torch.compile(norm, fullgraph=True)(x), norm(x))


def test_what_the_operators_lack_is_left_to_liger(installed: adapter.Installation) -> None:
    ours: Any = liger_ops.LigerSiLUMulFunction
    left: list[Any] = []
    x = torch.randn(3, 4)
    with pytest.MonkeyPatch.context() as patch:
        for name in installed.replaced:
            original = getattr(liger_ops, name).original
            patch.setattr(original, "apply", lambda *args: left.append(args), raising=False)
        ours.apply(x, x, 2.0, 1.0)
        ours.apply(x, x.double())
        ours.apply(x.to("meta"), x.to("meta"))
        wide = torch.randn(4, dtype=torch.float64)
        liger_ops.LigerRMSNormFunction.apply(x, wide, 1e-6)
        liger_ops.LigerRMSNormFunction.apply(x, None, 1e-6, 0.0, 1)
        liger_ops.LigerFusedAddRMSNormFunction.apply(x, x, wide, 1e-6)
        target = torch.zeros(3, dtype=torch.int64)
        none = (None, -100, 0.0, 0.0, "mean", None, False)
        liger_ops.LigerCrossEntropyFunction.apply(x, target, *none, True)
        liger_ops.LigerFusedLinearCrossEntropyFunction.apply(x, x, target, None, *none, torch.float64)
        liger_ops.LigerRopeFunction.apply(x, x, x[None, None], x[None, None])
    assert len(left) == 9


def test_autocast_changes_nothing(installed: adapter.Installation) -> None:
    x = torch.randn(3, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert functional.liger_swiglu(x, x).dtype == torch.float32


def test_a_device_without_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer_ops.library, "backends", dict)
    done = adapter.install()
    adapter.uninstall()
    assert done.replaced == {}
    assert done.not_replaced["LigerGELUMulFunction"] == "no loaded backend has geglu and geglu_backward"


def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "KNOWN_VERSIONS", ("0.1.0",))
    with pytest.raises(RuntimeError, match=r"liger-kernel .* is installed; transformer_ops.liger knows 0.1.0"):
        adapter.install()
    adapter.uninstall()  # nothing to undo


def test_another_interface_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    known = adapter._REPLACED["LigerGELUMulFunction"]
    monkeypatch.setitem(adapter._REPLACED, "LigerGELUMulFunction", known._replace(arguments=("a", "b", "c")))
    done = adapter.install()
    adapter.uninstall()
    assert done.not_replaced["LigerGELUMulFunction"] == "liger_kernel.ops.geglu takes (a, b), known is (a, b, c)"


def test_modules_of_another_copy_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(liger_ops, "__file__", str(tmp_path))
    with pytest.raises(RuntimeError, match="which is not the installed liger-kernel"):
        adapter.install()


def test_without_liger_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(ImportError, match="pip install liger-kernel"):
        adapter.install()
