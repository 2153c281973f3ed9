"""A script of at most fifteen lines that shows a finding, with the candidate and the reference.

Forms, the plainest first: with PyTorch alone and ``torch.testing.assert_close``; the reference in float64 and a stated
tolerance for one element; the judge's own way of calling; and with the inputs in a file, where no text makes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import calls, subjects
from .cases import Case
from .comparison import Place
from .saved import is_saved
from .trials import Trial

LINES = 15
_WEIGHTS = "(torch.arange(y.numel()) * 5 % 17 - 8).view(y.shape).to(y.dtype) / 8"
_GRAD = "torch.autograd.grad(y, {inputs}, w"
_GRADIENTS = """\
def gradients(f):
    x = {leaves}
    y = f(*x)
    w = {weights}"""
_BOTH = "got, want = gradients(f), gradients(g)"
_FOUR = "[[a * (1 - k / 8) if a.is_floating_point() else a for a in t] for k in range(4)]"

# What each program does, in few lines, with the candidate f and the reference g; they leave got and want.
_TEXTS = {
    "values": "got, want = f(*t), g(*t)",
    "without_grad": "with torch.no_grad():\n    got = f(*t)\nwant = g(*t)",
    "in_inference_mode": "with torch.inference_mode():\n    got = f(*t)\ngot, want = got.clone(), g(*t)",
    "gradients": f"{_GRADIENTS}\n    return {_GRAD}, materialize_grads=True)\n{_BOTH}",
    "gradients_of_transposed": f"""\
{_GRADIENTS}
    w = w.mT.contiguous().mT if f is not g else w
    return {_GRAD}, materialize_grads=True)
{_BOTH}""",
    "gradients_of_sum": f"""\
{_GRADIENTS}
    return torch.autograd.grad(y.sum(), {{inputs}}, materialize_grads=True)
{_BOTH}""",
    "gradients_again": f"""\
{_GRADIENTS}
    {_GRAD}, retain_graph=True, allow_unused=True)
    return {_GRAD}, materialize_grads=True)
{_BOTH}""",
    "incoming_after_backward": f"{_GRADIENTS}\n    {_GRAD}, allow_unused=True)\n    return w\n{_BOTH}",
    "inputs_after_backward": f"""\
{_GRADIENTS}
    {_GRAD}, allow_unused=True)
    return [a.clone() for a in t]
want, got = gradients(g), gradients(f)""",
    "gradients_after_inputs_changed": """\
def gradients(f, factor):
    x = {leaves}
    z = [a * 1 for a in x]
    y = f(*z)
    with torch.no_grad():
        [z[i].mul_(factor) for i in {wrt}]
    return torch.autograd.grad(y, {inputs}, {weights}, materialize_grads=True)
got, want = gradients(f, 0.5), gradients(g, 1)""",
    "second_derivatives": f"""\
{_GRADIENTS}
    first = {_GRAD}, create_graph=True, allow_unused=True)
    y = torch.cat([a.flatten() for a in first if a is not None and a.requires_grad] or [x[0].sum()[None] * 0])
    return torch.autograd.grad(y, {{inputs}}, {{weights}}, materialize_grads=True)
{_BOTH}""",
    "tangents": """\
import torch.autograd.forward_ad as ad
def tangents(f):
    with ad.dual_level():
        x = [ad.make_dual(y, {weights}) if i in {wrt} else y for i, y in enumerate(t)]
        return ad.unpack_dual(f(*x)).tangent
got, want = tangents(f), tangents(g)""",
    "compiled": 'got = torch.compile(f, backend="aot_eager", dynamic=False)(*t)\nwant = g(*t)',
    "compiled_for_any_size": 'got = torch.compile(f, backend="aot_eager", dynamic=True)(*t)\nwant = g(*t)',
    "compiled_shapes": """\
def zeros(f):
    return lambda *t: torch.zeros(f(*t).shape)
got = torch.compile(zeros(f), backend="aot_eager", dynamic=False)(*t)
want = zeros(g)(*t)""",
    "vmapped": """\
batch = [[a * (1 - k / 4) if j == {0} else a for j, a in enumerate(t)] for k in range(3)]
s = [torch.stack([one[j] for one in batch], {1}) if j == {0} else a for j, a in enumerate(t)]
got = torch.vmap(f, tuple({1} if j == {0} else None for j in range(len(t))))(*s)
want = torch.stack([g(*one) for one in batch])""",
    "under_autocast": """\
with torch.autocast("cpu", dtype=torch.bfloat16):
    got = f(*t).float()
want = g(*t).float()""",
    "in_threads": """\
from concurrent.futures import ThreadPoolExecutor
batch = {four}
with ThreadPoolExecutor(4) as pool:
    got = list(pool.map(lambda one: f(*one), batch))
want = [g(*one) for one in batch]""",
    "repeatedly": "got = [f(*t) for _ in range(10)]\nwant = [g(*t) for _ in range(10)]",
    "after_memory_changed": """\
f(*t)
[a.mul_(0.5) for a in t if a.is_floating_point()]
got, want = f(*t), g(*t)""",
    "after_another_call": "got = f(*t)\nf(*{four}[3])\nwant = g(*t)",
    "in_new_memory": """\
torch.utils.deterministic.fill_uninitialized_memory = True
torch.use_deterministic_algorithms(True, warn_only=True)
got, want = f(*t), g(*t)""",
    "after_unseen_change": """\
f(*t)
[a.data.mul_(0.5) for a in t if a.is_floating_point()]
got, want = f(*t), g(*t)""",
    "after_many_calls": "for _ in range(600):\n    got = f(*t)\nwant = g(*t)",
    "among_nan": """\
from opwheel_tools.testing.guarded_memory import NAN, guarded_memory
with guarded_memory(NAN, is_filled=True):
    got = f(*[a.clone() for a in t])
want = g(*t)""",
    "among_large": """\
from opwheel_tools.testing.guarded_memory import LARGE, guarded_memory
with guarded_memory(LARGE, is_filled=True):
    got = f(*[a.clone() for a in t])
want = g(*t)""",
    "inputs_after": "want, got = [a.clone() for a in t], t\ng(*want)\nf(*t)",
    "state_after": "want, got = [a.clone() for a in t], t\ng(*want)\nf(*t)",
    "inputs_after_writing_results": """\
want, got = [a.clone() for a in t], t
g(*want).detach().zero_()
f(*t).detach().zero_()""",
    "inputs_after_failure": """\
want, got = [a.clone() for a in t], t
for i in range(len(t)):
    try:
        f(*t[:i], t[i].new_ones(2, 3, 5, 7), *t[i + 1 :])
    except Exception:
        pass""",
}


# Those that leave a list of tensors, one for each place that is compared.
_LISTS = ("gradients", "second_derivatives", "incoming", "inputs", "state")

# What shows other findings, by group; {0} is the first thing that the message names.
_OF_GROUPS = {
    "out of bounds": """\
from opwheel_tools.testing.guarded_memory import guarded_memory
with guarded_memory() as guards:
    f(*[a.clone() for a in t])
assert not guards.anywhere, f"it writes {guards.anywhere} memory that is its own\"""",
    "calls the reference": """\
import sys
called = []
sys.setprofile(lambda frame, event, _: called.append(event) if frame.f_code == reference.__code__ else None)
f(*t)
sys.setprofile(None)
assert not called, "it calls the reference\"""",
    "replaces functions": """\
f(*t)
assert {0} is before, "{0} is replaced\"""",
    "running": """\
import threading
from pathlib import Path
f(*t)
children = "".join(one.read_text() for one in Path("/proc/self/task").glob("*/children"))
assert threading.active_count() == 1 and not children, "something goes on\"""",
}
_SAME_OPERATORS = """\
class Calls(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        return ops.append(str(op)) or op(*args, **(kwargs or {}))
ops = []
with Calls(): f(*t)
assert {made} not in str(ops), "it calls the reference\""""


class Names(NamedTuple):
    """What was given: candidate, reference, their init inputs, inputs, and modules to import first.

    ``is_class`` says that they are classes of modules, ``is_interpreted`` that Triton's interpreter runs the kernels.
    """

    candidate: str
    reference: str
    init: str
    inputs: str
    imports: tuple[str, ...] = ()
    is_class: bool = False
    is_interpreted: bool = False


class Wanted(NamedTuple):
    """What a script is to show.

    Args:
        group: of the finding.
        message: of it.
        trial: that shows it.
        case: of the trial.
        place: of the element that is wrong.
        file: of the trial's tensors; empty where there is none.
    """

    group: str
    message: str
    trial: Trial
    case: Case
    place: Place
    file: str = ""


def scripts(names: Names, wanted: Wanted) -> Iterator[str]:
    """Texts that may show a finding, the plainest first; each raises ``AssertionError`` where it is."""
    for lines in _forms(names, wanted):
        if len(lines) <= LINES:
            yield "\n".join(lines) + "\n"


def _forms(names: Names, wanted: Wanted) -> Iterator[list[str]]:
    picks = ("", f"[{wanted.place.tensor}]")
    if wanted.group in _OF_GROUPS:
        before, body = _of_group(wanted)
        yield _lines(names, wanted, body, before=before)
        return
    program, files = wanted.trial.program, ("", wanted.file) if wanted.file else ("",)
    for file in files:
        body = _filled(_TEXTS[program], list(wanted.trial.numbers)).split("\n") if program in _TEXTS else []
        close = "torch.testing.assert_close(got, want{})"
        for pick in picks if body else ():
            yield _lines(names, wanted, [*body, close.format("")], pick, file=file)
        for pick in picks if body else ():
            yield _lines(names, wanted, [*body, close.format(", rtol=0, atol=1e-6")], pick, file=file)
        if body and wanted.place.atol:
            is_list = program.startswith(_LISTS)
            yield _lines(
                names, wanted, [*body, _far(wanted, is_list)], "" if is_list else picks[0], file=file, wide=True
            )
            if not is_list:
                yield _lines(names, wanted, [*body, _far(wanted, False)], picks[1], file=file, wide=True)
        own = [
            "from opwheel_tools.judge.programs import PROGRAMS",
            f"way, more, u = PROGRAMS[{program!r}], {list(wanted.trial.numbers)}, [a.clone() for a in t]",
            "got, want = way.run(f, t, *more), (way.want or way.run)(g, u, *more)",
        ]
        yield _lines(names, wanted, [*own, close.format("")], file=file)
        if wanted.place.atol:
            yield _lines(names, wanted, [*own, _far(wanted, True)], file=file, wide=True)


def _far(wanted: Wanted, is_list: bool) -> str:
    """The reference is in float64 where this is the end, and the tolerance is the judge's."""
    tensor, element, atol = wanted.place
    which = f"[{tensor}]" if is_list else ""
    got, want = (f"{name}{which}.double().flatten()[{element}]" for name in ("got", "want"))
    return f"torch.testing.assert_close({got}, {want}, rtol=0, atol={atol:.3g})"


def _of_group(wanted: Wanted) -> tuple[list[str], list[str]]:
    """Lines in front of all others, and at the end, for a finding that no result shows."""
    first = wanted.message.partition(", ")[0]
    body = _OF_GROUPS[wanted.group].replace("{0}", first)
    if wanted.group == "replaces functions" and first.startswith("the kernel"):
        return [], ["f(*t)", f"assert {first.removeprefix('the kernel ')!r} not in torch.library._impls"]
    if wanted.group == "calls the reference" and wanted.message.endswith("nothing else"):
        made = first.removeprefix("it calls ").removesuffix(" as the reference does")
        return [], _SAME_OPERATORS.replace("{made}", repr(made)).split("\n")
    if wanted.group == "replaces functions":
        owner = first.rpartition(".")[0]
        needed = [f"import {owner}"] if owner in ("time", "builtins") else []
        return [*needed, f"before = {first}"], body.split("\n")
    return [], body.split("\n")


def _lines(
    names: Names,
    wanted: Wanted,
    body: list[str],
    pick: str = "",
    *,
    file: str = "",
    wide: bool = False,
    before: list[str] | None = None,
) -> list[str]:
    expressions = () if file else wanted.trial.variant.expressions
    is_given, has_saved = "given[" in str(expressions), any(map(is_saved, expressions))
    subjects_are = [
        *subjects.statements(names.candidate, "candidate"),
        *subjects.statements(names.reference, "reference"),
        *(subjects.statements(names.init, "init") if names.init else []),
        *(subjects.statements(names.inputs, "inputs") if is_given and names.inputs else []),
        *(subjects.statements(wanted.case.saving + subjects.DECLARED, "saved") if has_saved else []),
    ]
    if names.is_class:
        arguments = "*init()" if names.init else ""
        subjects_are += [f"torch.manual_seed(0); {one} = {one}({arguments})" for one in ("candidate", "reference")]
    functions = list(_functions(wanted.case, pick))
    constants = [one for one in ("nan", "inf") if re.search(rf"\b{one}\b", " ".join(expressions))]
    first = ["runpy"] if any("runpy" in line for line in subjects_are) else []
    return [
        f"import {', '.join([*(['os'] if names.is_interpreted else []), *first, 'torch'])}",
        *(['os.environ["TRITON_INTERPRET"] = "1"'] if names.is_interpreted else []),
        *(f"import {module}" for module in names.imports),
        *([f"from math import {', '.join(constants)}"] if constants else []),
        *(before or []),
        *dict.fromkeys(subjects_are),
        *functions,
        *(["h, g = g, lambda *t: h(*[a.double() if a.is_floating_point() else a for a in t])"] if wide else []),
        *([f"t = torch.load({file!r})"] if file else ["torch.manual_seed(0)"]),
        *(_given(wanted.trial.case, expressions) if is_given else _made(expressions) if expressions else []),
        *body,
    ]


def _functions(case: Case, pick: str) -> Iterator[str]:
    """Lines that make ``f`` and ``g`` of candidate and reference: functions of the tensors alone."""
    call = _call(case.template)
    if case.state:
        args, kwargs = _arguments(case.template)
        yield f"names = {list(case.state)}"
        for short, name in (("f", "candidate"), ("g", "reference")):
            given = f"dict(zip(names, t[{case.inputs}:])), ({args}{',' * bool(args)}), {{{kwargs}}}"
            yield f"{short} = lambda *t: torch.func.functional_call({name}, {given}){pick}"
    elif (call, pick) == ("(*t)", ""):
        yield "f, g = candidate, reference"
    else:
        yield f"f, g = (lambda *t: candidate{call}{pick}), (lambda *t: reference{call}{pick})"


def _filled(body: str, numbers: list[int]) -> str:
    texts = {
        "leaves": f"[a.detach().requires_grad_(i in {numbers}) for i, a in enumerate(t)]",
        "inputs": f"[x[i] for i in {numbers}]",
        "weights": _WEIGHTS,
        "wrt": str(numbers),
        "four": _FOUR,
        **{str(i): str(number) for i, number in enumerate(numbers)},
    }
    for key, text in texts.items():
        body = body.replace(f"{{{key}}}", text)
    return body


def _made(expressions: tuple[str, ...]) -> list[str]:
    """Lines that make the tensors; one for each where one is another, and saved ones after the others."""
    if any(map(is_saved, expressions)):
        others = ["None" if is_saved(one) else one for one in expressions]
        return [*_made(tuple(others)), *(f"t[{i}] = {one}" for i, one in enumerate(expressions) if is_saved(one))]
    if not any(re.search(r"\bt\[", one) for one in expressions):
        return [f"t = [{', '.join(expressions)}]"]
    first, *others = expressions
    return [f"t = [{first}]", *(f"t += [{one}]" for one in others)]


def _given(case: int, expressions: tuple[str, ...]) -> list[str]:
    """Lines that make the tensors of one of the given calls."""
    is_as_given = expressions == tuple(f"given[{i}]" for i in range(len(expressions)))
    return [
        "made = list(inputs())",
        f"made = made[{case}] if isinstance(made[0], tuple) else made",
        f"{'t' if is_as_given else 'given'} = [a for a in made if isinstance(a, torch.Tensor)]",
        *([] if is_as_given else _made(expressions)),
    ]


def _call(template: Any) -> str:
    """``(*t)``, or the arguments of a call whose tensors are ``t``."""
    args, kwargs = calls.decode(template, calls.Places())
    texts = [calls.text(one) for one in args]
    if not kwargs and texts == [f"t[{i}]" for i in range(len(texts))]:
        return "(*t)"
    return f"({', '.join([*texts, *(f'{key}={calls.text(one)}' for key, one in kwargs.items())])})"


def _arguments(template: Any) -> tuple[str, str]:
    """The texts of positional arguments, and of a dict of those with names."""
    args, kwargs = calls.decode(template, calls.Places())
    return ", ".join(map(calls.text, args)), ", ".join(f"{key!r}: {calls.text(one)}" for key, one in kwargs.items())
