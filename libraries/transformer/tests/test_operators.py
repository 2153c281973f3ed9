"""The operators, as users call them. What every backend must do besides is in the conformance kit (backends/cpu/tests)."""

import torch
import transformer_ops


def test_values_and_gradients():
    x, y = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    torch.testing.assert_close(transformer_ops.axpby(x, y, 2.0, -3.0), 2 * x - 3 * y)
    assert torch.autograd.gradcheck(lambda x, y: transformer_ops.axpby(x, y, 2.0, -3.0), (x, y), check_forward_ad=True)


def test_out_and_in_place():
    x, y = torch.randn(4), torch.randn(4)
    out = torch.empty(0)
    assert transformer_ops.axpby(x, y, 2.0, -3.0, out=out) is out
    torch.testing.assert_close(transformer_ops.axpby_(x, y, 2.0, -3.0), out)


def test_it_is_one_graph():
    x, y = torch.randn(4), torch.randn(4)
    compiled = torch.compile(transformer_ops.axpby, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y, 2.0, -3.0), 2 * x - 3 * y)


def test_the_backend_is_loaded():
    transformer_ops.require("cpu")
