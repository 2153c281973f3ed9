"""Who is measured: muladd, what else computes ``a * b + c``, and the limits of the machine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from opwheel_tools.bench import triad
from opwheel_tools.bench.suite import OVERHEAD, Case, Form, Implementation, Names, Operands
from opwheel_tools.bench.unavailable import UnavailableError
from opwheel_tools.compiled import CompileError, compiler
from torch import Tensor

import muladd

from . import expressions
from .cases import BACKWARD, IN_PLACE, NEW, OUT, SCALE_SHIFT


def _forms(new: str, **others: str) -> dict[Form, str]:
    given = {Form[name.upper()]: statement for name, statement in others.items()}
    backward = f"torch.autograd.grad({new}, (a, b), grad)"
    return {Form.NEW: new, Form.NO_GRAD: new, Form.FORWARD: new, Form.BACKWARD: backward} | given


def _addcmul_setup(case: Case, operands: Operands) -> Names:  # noqa: ARG001  # an interface
    c = operands.inputs["c"]
    return {"c": c if isinstance(c, Tensor) else operands.out.new_tensor(c)}


@functools.lru_cache(maxsize=1)  # two implementations use it, one after the other
def _compiled(case: Case) -> Names:
    torch.compiler.reset()  # or each case's static shapes would count against the limit on recompilations
    return {"compiled": expressions.compiled(case.form), "compiled_muladd": expressions.compiled_muladd()}


def _compile_setup(case: Case, operands: Operands) -> Names:
    if operands.out.device.type == "cpu":
        try:
            compiler()
        except CompileError as error:
            raise UnavailableError(str(error)) from error
    return _compiled(case)


def _custom_setup(case: Case, operands: Operands) -> Names:
    return {"custom": expressions.custom_operator(case.form, tensor_c=isinstance(operands.inputs["c"], Tensor))}


def _ones(case: Case, operands: Operands) -> Names:  # noqa: ARG001  # an interface
    return {"b": torch.ones_like(operands.out)}  # by which a stays what it is, however often it is multiplied


def _triad_setup(case: Case, operands: Operands) -> Names:
    a, b, c = operands.inputs.values()
    return {"triad": triad.prepare(a, b, c, a if case.form is Form.IN_PLACE else operands.out)}


def _in_fresh_memory(call: Callable[[], Any], huge_pages: str) -> Any:
    library, chosen = muladd.library, muladd.library.policy
    library.set_result_cache("never")
    library.set_huge_pages(huge_pages)
    try:
        return call()
    finally:
        library.set_huge_pages(chosen.huge_pages)
        library.set_result_cache(chosen.result_cache)


def _with_fresh_memory(name: str, huge_pages: str, explanation: str) -> Implementation:
    return Implementation(
        name,
        {
            form: f"in_fresh_memory(lambda: {MULADD.statements[form]}, '{huge_pages}')"
            for form in (Form.NEW, Form.BACKWARD)
        },
        setup=lambda case, operands: {"in_fresh_memory": _in_fresh_memory},  # noqa: ARG005  # an interface
        groups=_FRESH,
        least_elements=_FRESH_ELEMENTS,
        explanation=explanation,
    )


MULADD = Implementation(
    "muladd",
    _forms("muladd.muladd(a, b, c)", out="muladd.muladd(a, b, c, out=out)", in_place="muladd.muladd_(a, b, c)"),
)
_OVERHEAD_ONLY = frozenset({OVERHEAD})
_FRESH = frozenset({NEW, BACKWARD})
_FRESH_ELEMENTS = 2**22  # from here on, results are large enough for huge pages
_ADDCMUL = _forms(
    "torch.addcmul(c, a, b)", out="torch.addcmul(c, a, b, out=out)", in_place="torch.addcmul(c, a, b, out=a)"
)
# Allocators that keep what is freed, however large, for what is allocated next: name, what is preloaded, settings.
# Without these the C library maps large memory block by block and unmaps it, jemalloc returns it to the system at once,
# tcmalloc little by little.
_ALLOCATORS = (
    (
        "glibc",
        "",
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.hugetlb=1"},
    ),
    ("tcmalloc", "tcmalloc_minimal", {"TCMALLOC_RELEASE_RATE": "0"}),
    (
        "jemalloc",
        "jemalloc",
        {"MALLOC_CONF": "oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always"},
    ),
)


def _with_kept_memory(allocator: str, preloaded: str, settings: dict[str, str]) -> Implementation:
    said = " ".join(f"{name}={value}" for name, value in settings.items())
    return Implementation(
        f"addcmul, {allocator}",
        _ADDCMUL,
        setup=_addcmul_setup,
        groups=_FRESH,
        least_elements=_FRESH_ELEMENTS,
        environment=settings,
        preloaded=preloaded,
        explanation=f"addcmul in a process whose allocator, {allocator}, keeps memory of any size: {said}",
    )


OTHERS = (
    Implementation(
        "torch.ops",
        _forms("torch.ops.muladd.muladd.default(a, b, c)"),
        groups=_OVERHEAD_ONLY,
        explanation="the operator without its public function",
    ),
    Implementation(
        "torch.ops.aten",
        _forms("torch.ops.aten.addcmul.default(c, a, b)"),
        setup=_addcmul_setup,
        groups=_OVERHEAD_ONLY,
        explanation="addcmul called as torch.ops is: what that way costs PyTorch's own operators",
    ),
    Implementation(
        "eager",
        _forms("a * b + c", out="torch.mul(a, b, out=out).add_(c)", in_place="a.mul_(b).add_(c)"),
        explanation="the expression as PyTorch runs it: two operators, a temporary result between them",
    ),
    Implementation(
        "addcmul", _ADDCMUL, setup=_addcmul_setup, explanation="torch.addcmul, PyTorch's own operator for it"
    ),
    _with_fresh_memory("huge pages", "advise", "muladd without its result cache: fresh memory, in huge pages"),
    _with_fresh_memory("small pages", "never", "muladd with neither the result cache nor huge pages"),
    Implementation(
        "addcmul, huge pages",
        _ADDCMUL,
        setup=_addcmul_setup,
        groups=_FRESH,
        least_elements=_FRESH_ELEMENTS,
        environment={"THP_MEM_ALLOC_ENABLE": "1"},
        explanation="addcmul in a process with THP_MEM_ALLOC_ENABLE=1, PyTorch's own switch for huge pages",
    ),
    *(_with_kept_memory(*one) for one in _ALLOCATORS),
    Implementation(
        "addcmul, out=",
        {Form.NEW: _ADDCMUL[Form.OUT]},
        setup=_addcmul_setup,
        groups=frozenset({NEW}),
        least_elements=_FRESH_ELEMENTS,
        explanation="addcmul into a result that was allocated once: no fresh memory",
    ),
    Implementation(
        "mul_",
        {Form.IN_PLACE: "a.mul_(b)"},
        setup=_ones,
        computes=lambda a, b, c: a,  # noqa: ARG005  # by position
        inputs_read=2,
        groups=_OVERHEAD_ONLY,
        explanation="a.mul_(b), which computes less: the cheapest call in place",
    ),
    Implementation(
        "compile",
        _forms("compiled(a, b, c)", out="compiled(a, b, c, out)", in_place="compiled(a, b, c)"),
        setup=_compile_setup,
        explanation="the expression under torch.compile, with static shapes",
    ),
    Implementation(
        "muladd in compile",
        _forms("compiled_muladd(a, b, c)"),
        setup=_compile_setup,
        groups=_OVERHEAD_ONLY,
        explanation="muladd.muladd under torch.compile, with static shapes",
    ),
    Implementation(
        "custom_op",
        _forms("custom(a, b, c)", out="custom(a, b, c, out)", in_place="custom(a, b, c)"),
        setup=_custom_setup,
        explanation="the expression as a torch.library.custom_op",
    ),
)
TRIAD = Implementation(
    "triad",
    {Form.NEW: "triad(torch.empty_like(a))", Form.OUT: "triad(out)", Form.IN_PLACE: "triad(a)"},
    setup=_triad_setup,
    groups=frozenset({NEW, OUT, IN_PLACE}),
    layouts=frozenset({"contiguous"}),
    explanation="a loop in C++ compiled for this processor, without any checks: what the memory allows",
)
COPY = Implementation(
    "copy",
    {Form.NEW: "a.clone()", Form.OUT: "out.copy_(a)"},
    computes=lambda a, b, c: a,  # noqa: ARG005  # by position
    inputs_read=1,
    groups=frozenset({NEW, OUT, SCALE_SHIFT}),
    explanation="a copy of one operand: what the device's memory allows",
)
