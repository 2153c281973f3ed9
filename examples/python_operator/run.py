"""Two operators written in Python, under all of PyTorch: values, gradients, vmap, forward mode, torch.compile, export.

python examples/python_operator/run.py
"""

from __future__ import annotations

import torch
from log_cosh import log_cosh
from soft_clip import soft_clip
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck


def robust_loss(x: Tensor) -> Tensor:
    """Both operators in a row."""
    return log_cosh(soft_clip(x, 5.0)).mean()


class RobustLoss(torch.nn.Module):
    """The same as a module, for export."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute the loss."""
        return robust_loss(x)


def main() -> None:
    """Every line raises if it is wrong."""
    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    expected = torch.log(torch.cosh(5 * torch.tanh(x / 5))).mean()
    torch.testing.assert_close(robust_loss(x), expected)
    print(f"values: {robust_loss(x).item():.6f}")

    gradcheck(robust_loss, (x,), check_forward_ad=True)
    gradgradcheck(robust_loss, (x,))
    print("gradients: reverse, forward and second order agree with finite differences")

    batch = torch.randn(8, 4, 3, dtype=torch.float64)
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(robust_loss))(batch),
        torch.stack([torch.func.grad(robust_loss)(row) for row in batch]),
    )
    print("vmap: one call for the whole batch")

    torch.testing.assert_close(torch.compile(robust_loss, fullgraph=True, backend="aot_eager")(x), expected)
    program = torch.export.export(RobustLoss(), (x.detach(),))
    names = [str(node.target) for node in program.graph.nodes if "examples" in str(node.target)]
    print(f"compile and export: one graph, with the nodes {', '.join(names)}")

    for operator, inputs in ((torch.ops.examples.soft_clip, (x, 5.0)), (torch.ops.examples.log_cosh, (x,))):
        torch.library.opcheck(operator.default, inputs)
    print("torch.library.opcheck: passed")


if __name__ == "__main__":
    main()
