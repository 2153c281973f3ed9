"""One operator, declared."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch

from .autocast_policy import AutocastDeclaration
from .rules import Opaque, Rule
from .sharded_reduction import ShardedReduction

CompilePolicy = Literal["fuse", "kernel"]
Derivative = str | Callable[..., Any]


class Operator(NamedTuple):
    """An operator of an operator library: its truth in ATen operators, and what may be relied on beyond that.

    What only tests and benchmarks need of it, such as calls to make, is an ``opwheel_tools.OpInfo``.

    Args:
        name: of its schema. The overloads ``name.out`` and ``name_`` of an :class:`Elementwise` operator, where the
            list has them, follow from it.
        reference: the same computation in ATen operators, called with the schema's arguments (keyword-only ones by
            name), tensors in the dtypes as given. It is the truth for everything that follows. For an
            :class:`Elementwise` operator it is given tensors of the result's shape and of the compute dtype.
        rule: what the operator may be relied on for; :class:`Opaque` relies on the reference alone.
        derivatives: for the inputs that a key names (``"x"`` or ``"x, weight"``) a formula of their gradients: text in
            the notation of PyTorch's derivatives.yaml, such as ``"norm_backward(grad, x, weight, rstd)"``, or a
            function, whose parameters say what it needs. Both name arguments, results (unnamed ones ``result``, or
            ``result0``, ``result1`` ...) and the results' gradients (``grad`` for the first, ``grad_<result>``,
            ``grads[0]``; a function may also take all of them as ``grads``). A name with two meanings is refused: where
            an argument is called ``grad``, the gradient is ``grads[0]``, and formulas cannot use the argument. Exactly
            what formulas name is kept for the backward pass. A key with several inputs is taken where all of them need
            a gradient, or have no formula of their own; inputs in parentheses share a gradient:
            ``"(x, residual), weight"`` has a formula with two results. Of ``x.sym_sizes()``, ``x.sym_size(0)``,
            ``x.sym_numel()``, ``x.dim()``, ``x.scalar_type()``, ``x.device()`` and ``x.options()`` the value is kept in
            place of the tensor; "Writing an operator" in the documentation has the whole notation, and
            ``f_(d_w, ...)``, which may overwrite a result that is kept for it.
            Gradients come from the reference instead where an input needs one that has no formula, or one arrives at a
            result whose gradient no formula names; for a random operator both are refused, as the reference would draw
            again. ``"None"`` is the formula of an input that never has a gradient. ``derivatives=None``: the
            operator is not differentiable.
        not_differentiable: names of results and of inputs without a gradient. Those that are no floating-point or
            complex tensors never have one. An input that is named is a constant for all derivatives: no gradient is
            computed for it, and a call in which only such inputs require one records nothing. Its formula may also be
            ``"non_differentiable"``, as in derivatives.yaml.
        training: the operator that is called in place of this one where a gradient is recorded: it has the same
            arguments, this one's results first, and others that its ``derivatives`` keep. So a call without gradients
            does not pay for what only they need, such as gradients that are computed along the way. An operator with
            one declares no ``derivatives`` of its own. Dispatch modes see the operator for training, as selective
            checkpointing has to keep what it returns; policies of selective checkpointing may name either operator
            (:func:`opwheel.operators_of` gives both).
        autocast: what ``torch.autocast`` does to floating-point arguments: a policy for all, a dict from names of
            arguments to policies, or an :class:`Autocast`, which also says what dtype results are returned in.
        compile: what torch.compile's inductor makes of an :class:`Elementwise` operator: ``"fuse"`` writes its
            reference into the same loop as its neighbours, ``"kernel"`` keeps it a call of the backend's kernel.
            Operators with other rules are always kept, and so are all of them where ``[policy] compile`` or
            ``<PREFIX>_COMPILE`` is ``"kernel"``.
        flops: floating-point operations for one element of one result, as ``torch.utils.flop_counter`` counts them, or
            a function of the schema's arguments that counts those of a call.
        tensor_variant: for an argument that is a number in the schema, the operator that takes a tensor in its place
            and the other arguments as they are: the public function picks it when it is given a tensor. They are two
            operators, not overloads of one: PyTorch would turn a tensor of one element into a number, and lose its
            gradient.
        invariant: what the bits of results do not depend on, in every dtype and on every backend that does not say
            otherwise. The names are

            - ``batch``: what else is computed beside it. Parts of the named arguments along their dimensions give those
              parts of the named results.
            - ``prefix``: what comes after it. The same, of parts that begin with the first element.
            - ``order``: how rows are divided, for sums over rows: the same rows in the same order give the same bits
              whatever leading dimensions and threads divide them into. The dimensions, of arguments alone, are counted
              from the end and name the last one of the rows: ``{"x": -2}``.
            - ``threads``, ``layout`` (strides and offsets), ``compiled`` (by ``torch.compile``), ``grad`` (whether a
              gradient is recorded), ``repeat`` (the call before, and calls at the same time): True.

            The first three have a dict from names of arguments and results to dimensions, such as
            ``{"q": 1, "k": 1, "result": 1}``, or a tuple of such dicts. Of an argument that is no tensor it has the
            value for which the claim is made, and None for an optional tensor that has to be left out:
            ``{"q": 1, "is_causal": True, "bias": None, "result": 1}``. ``"batch": True`` takes
            dimensions from :class:`Rows` and :class:`Elementwise`. "The same bits in training and sampling" in the
            documentation says more.
        placements: on which parts of its arguments each process may compute a part of the results (DTensor), where that
            is neither claimed by the rule nor found by the library's tests: texts such as
            ``"x=S(0), weight=R -> S(0)"``. "Writing an operator" in the documentation has the notation.
        sharded: how it computes where a dimension that it reduces is sharded, with a few numbers exchanged in the place
            of the whole dimension: a :class:`ShardedReduction`.
        fake: what gives empty results for fake arguments, where the results' shapes depend on data and the reference
            therefore cannot; called like the reference (``torch.library.get_ctx().new_dynamic_size()``).
        memory_format: the strides of results. ``torch.contiguous_format``, or ``torch.preserve_format``, for operators
            that compute an element from those at the same place: where all tensors that are passed have the result's
            shape and the same strides, without gaps, it has these strides as well; else it is contiguous. The kernels
            of all backends do that. Not of :class:`Elementwise` operators, whose strides are those of PyTorch's.
        deprecated: what to use instead, as ``"use waves.scale"``: the public function then says so in a FutureWarning,
            and in its docstring. The operator itself, which saved models call, is as it was.
        doc: docstring of the public function. Without one there is none: the operator is for others' formulas.
    """

    name: str
    reference: Callable[..., Any]
    rule: Rule = Opaque()
    derivatives: Mapping[str, Derivative] | None = MappingProxyType({})
    not_differentiable: tuple[str, ...] = ()
    training: str = ""
    autocast: AutocastDeclaration = "promote"
    compile: CompilePolicy = "fuse"
    flops: int | Callable[..., int] = 1
    tensor_variant: Mapping[str, str] = MappingProxyType({})
    invariant: Mapping[str, Any] = MappingProxyType({})
    placements: tuple[str, ...] = ()
    sharded: ShardedReduction | None = None
    fake: Callable[..., Any] | None = None
    memory_format: torch.memory_format = torch.contiguous_format
    deprecated: str = ""
    doc: str = ""
