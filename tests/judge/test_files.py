"""Kernels in files that register operators of their own."""

import pytest
from opwheel_tools.judge import judge

KERNEL = """
import torch

library = torch.library.Library("{namespace}", "DEF")
library.define("half(Tensor x) -> Tensor")
library.impl("half", lambda x: x / 2, "CPU")
library.impl("half", lambda x: x.new_empty(*x.shape[:-1], x.shape[-1] + 1), "Meta")


def mean_half(x):
    y = torch.ops.{namespace}.half(x)
    return y.sum(-1) / y.shape[-1]


def half(x):
    return torch.ops.{namespace}.half(x)
"""

REFERENCE = """
import torch


def mean_half(x):
    return x.detach().mean(-1) / 2


def half(x):
    return x.detach() / 2


def inputs():
    yield (torch.randn(4, 6),)
"""


@pytest.mark.parametrize("name", ["mean_half", "half"])
def test_a_wrong_shape_of_fake_results_is_found(tmp_path, name):
    """Also where the kernel itself does not use it. The compiler imports the kernel's module, which a namespace's
    definition does not survive twice."""
    kernel, reference = tmp_path / "halves.py", tmp_path / "halves_reference.py"
    kernel.write_text(KERNEL.replace("{namespace}", f"judged_in_a_file_{name}"))
    reference.write_text(REFERENCE)
    verdict = judge(f"{kernel}:{name}", reference=f"{reference}:{name}", inputs=f"{reference}:inputs", scripts=False)
    assert "compile" in [finding.group for finding in verdict.findings]
