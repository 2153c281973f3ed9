"""One operator, declared."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from torch import Tensor

AutocastPolicy = Literal["promote", "lower_precision", "float32"]
Gradient = Callable[..., Tensor]


class JointGradient(NamedTuple):
    """Several gradients from one kernel: used when all of them are needed.

    Args:
        inputs: names of the arguments whose gradients ``formula`` returns, in its order.
        formula: called like a single gradient's formula.
    """

    inputs: tuple[str, ...]
    formula: Callable[..., tuple[Tensor, ...]]


class Operator(NamedTuple):
    """An element-wise operator of an operator library.

    Args:
        name: of its schema. The overloads ``name.out`` and ``name_``, where there are schemas of them, follow from it.
        reference: the same computation in ATen operators, called with the schema's positional arguments. It is given
            tensors of the result's shape and of the compute dtype: float32 for float16 and bfloat16 results, which are
            rounded once at the end.
        gradients: for each differentiable tensor argument a formula. The formula's parameters say what it needs:
            ``grad``, or ``grad_0``, ``grad_1`` ... for several results, and arguments of the operator by name; only
            those are kept for the backward pass. A gradient may have the broadcast shape; it is summed to the
            argument's.
        joint_gradient: a cheaper way to several gradients at once.
        autocast: what ``torch.autocast`` does to floating-point arguments.
        linear: sets of arguments in which every result is jointly linear while the others are fixed. A sum that is
            still spread over processes (DTensor's Partial) may go in there and come out as one.
        flops: floating-point operations for one element of one result, as ``torch.utils.flop_counter`` counts them.
        tensor_variant: for an argument that is a number in the schema, the operator that takes a tensor in its place
            and the other arguments as they are: the public function picks it when it is given a tensor. They are two
            operators, not overloads of one: PyTorch would turn a tensor of one element into a number, and lose its
            gradient.
        doc: docstring of the public function. Without one there is none: the operator is for others' formulas.
    """

    name: str
    reference: Callable[..., Any]
    gradients: Mapping[str, Gradient] = MappingProxyType({})
    joint_gradient: JointGradient | None = None
    autocast: AutocastPolicy = "promote"
    linear: tuple[tuple[str, ...], ...] = ()
    flops: int = 1
    tensor_variant: Mapping[str, str] = MappingProxyType({})
    doc: str = ""
