"""Which native Autograd library is for which version of PyTorch."""

import pytest
import torch
from opwheel._torch.release import native_library
from opwheel.dispatch import native_autograd


@pytest.mark.parametrize("version", ["2.13.0", "2.13.1", "2.13.0+cpu", "2.13.0+cu126", "2.13.12+cu130"])
def test_the_exact_minor_release(version):
    assert native_library("autograd", version) == "libopwheel_autograd_2_13.so"


@pytest.mark.parametrize(
    "version", ["2.14.0a0", "2.14.0a0+gitabc", "2.13.0rc1", "2.15.0.dev20260101+cpu", "3.0", "main"]
)
def test_what_is_no_release(version):
    with pytest.raises(ValueError, match="is not a release") as caught:
        native_library("autograd", version)
    assert version in str(caught.value)


@pytest.mark.parametrize("version", ["2.13.0+rocm6.4", "2.13.0+xpu", "2.13.0+nv25.10", "2.13.0+cpu.mine", "2.13.0+"])
def test_builds_of_others(version):
    with pytest.raises(ValueError, match="not PyTorch's own build") as caught:
        native_library("autograd", version)
    assert version in str(caught.value)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.14.0a0+gitabc", "torch 2.14.0a0+gitabc is not a release"),
        ("2.13.0+rocm6.4", "torch 2.13.0+rocm6.4 is not PyTorch's own build"),
        ("2.99.0+cpu", "opwheel has no native library for torch 2.99.0+cpu (libopwheel_autograd_2_99.so)"),
    ],
)
def test_the_reason_that_doctor_prints(monkeypatch, version, words):
    """`why_not`, which the command asks, gives it as soon as a process has such a torch."""
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.delenv("OPWHEEL_AUTOGRAD", raising=False)
    native_autograd._library.cache_clear()
    try:
        assert native_autograd.why_not().startswith(words)
    finally:
        native_autograd._library.cache_clear()
