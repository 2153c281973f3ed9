"""Kernels in files that register operators of their own."""

from opwheel_tools.judge import judge

KERNEL = """
import torch

library = torch.library.Library("judged_in_a_file", "DEF")
library.define("half(Tensor x) -> Tensor")
library.impl("half", lambda x: x / 2, "CPU")
library.impl("half", lambda x: x.new_empty(*x.shape[:-1], x.shape[-1] + 1), "Meta")


def mean_half(x):
    y = torch.ops.judged_in_a_file.half(x)
    return y.sum(-1) / y.shape[-1]
"""

REFERENCE = """
import torch


def mean_half(x):
    return x.detach().mean(-1) / 2


def inputs():
    yield (torch.randn(4, 6),)
"""


def test_a_wrong_shape_of_fake_results_is_found(tmp_path):
    """The compiler imports the kernel's module, which a namespace's definition does not survive twice."""
    kernel, reference = tmp_path / "halves.py", tmp_path / "halves_reference.py"
    kernel.write_text(KERNEL)
    reference.write_text(REFERENCE)
    verdict = judge(
        f"{kernel}:mean_half", reference=f"{reference}:mean_half", inputs=f"{reference}:inputs", scripts=False
    )
    assert "compile" in [finding.group for finding in verdict.findings]
