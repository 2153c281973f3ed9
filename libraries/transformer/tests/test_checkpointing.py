"""Selective checkpointing by the operators that are called."""

from functools import partial

import pytest
import torch
import transformer_ops
from opwheel import operators_of
from opwheel_tools.opinfo.lookup import op_info_of
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from .recording import Operators

OVERLOADS = transformer_ops.library.overloads
TRAINED = sorted(name for name, overload in OVERLOADS.items() if overload.operator.training)


def keeping(operators, function, inputs):
    """The gradients, and the operators that ran, where what these return is kept."""
    leaves = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
    with Operators() as recorded:
        context = partial(create_selective_checkpoint_contexts, operators)
        y = checkpoint(function, *inputs, use_reentrant=False, context_fn=context)
        gradients = torch.autograd.grad(y.sin().sum(), leaves)
    return gradients, recorded.counts


@pytest.mark.parametrize("name", TRAINED)
def test_a_kept_operator_runs_once(name):
    overload = OVERLOADS[name]
    function = getattr(transformer_ops, name)
    training = overload.operator.training
    assert operators_of(function)[0] is overload.op
    sample = next(iter(op_info_of(overload).samples("cpu", torch.float32, True)))
    call = partial(function, **sample.kwargs)
    expected, counts = keeping([torch.ops.aten.sin.default], call, sample.args)
    assert counts[training] == 2
    for operators in ([overload.op], [operators_of(function)[1]], list(operators_of(function))):
        found, counts = keeping(operators, call, sample.args)
        assert counts[training] == 1
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
