"""An operator whose kernel is C++ text, compiled when it is defined; :func:`opwheel.define` has those in Python."""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from opwheel.dispatch import Elementwise, Opaque, Operator, Rule
from opwheel.dispatch.author_functions import check_parameters
from opwheel.dispatch.autocast_policy import AutocastDeclaration
from opwheel.dispatch.declaration import Derivative
from opwheel.dispatch.defining import checked_schema, install_definition
from opwheel.dispatch.python_operators import PythonOperators, policy_of
from opwheel.registry.callees import connect

from .compiled import CompileError, compiler, kept_source, open_compiled

_MOST_ERRORS = 3

# What stands around an author's text. Its lines are counted from 1, as the author does.
_SOURCE = """\
#include "opwheel/kernels.h"

#include <cmath>

using namespace opwheel;

#line 1 "{file}"
{source}
#line 1 "registration"
#define OPWHEEL_DEFINED(KERNEL) KERNEL({name}, {schema})
OPWHEEL_DECLARE_KERNELS({namespace}, OPWHEEL_DEFINED)

extern "C" __attribute__((visibility("default"))) void* opwheel_defined_register() {{
  using torch::stable::detail::StableLibrary;
  auto* library = new StableLibrary(StableLibrary::Kind::IMPL, "{namespace}", "CPU", "{file}", 1);
  KernelRegistry kernels(nullptr, *library);  // it has no schema library
  implement<{namespace}::op::{name}, ::{name}>(kernels);
  return library;
}}

extern "C" __attribute__((visibility("default"))) void opwheel_defined_remove(void* library) {{
  delete static_cast<torch::stable::detail::StableLibrary*>(library);
}}
"""


def define_cpp(
    schema: str,
    source: str,
    *,
    reference: Callable[..., Any],
    rule: Rule = Opaque(),  # noqa: B008  # has no state
    derivatives: Mapping[str, Derivative] | None = MappingProxyType({}),
    not_differentiable: tuple[str, ...] = (),
    autocast: AutocastDeclaration = "promote",
    flops: int | Callable[..., int] = 1,
    invariant: Mapping[str, Any] = MappingProxyType({}),
    fake: Callable[..., Any] | None = None,
    doc: str = "",
) -> Callable[..., Any]:
    """Define an operator whose kernel for the CPU is C++ text, as :func:`opwheel.define` does with a function.

    ::

        softplus = opwheel_tools.define_cpp(
            "mine::softplus(Tensor x, float beta=1.0) -> Tensor",
            '''
            Tensor softplus(const Tensor& given, double beta) {
              check(given, "x").on_cpu().dtype(floating);
              const Tensor x = contiguous(given);
              Tensor y = new_empty_like(x);
              dispatch(dtype_of(x), [&]<class T>() {
                for (int64_t i = 0; i < numel(sizes_of(x)); ++i) {
                  data<T>(y)[i] = T(std::log1p(std::exp(beta * double(data<T>(x)[i]))) / beta);
                }
              });
              return y;
            }
            ''',
            reference=lambda x, beta: torch.log1p(torch.exp(beta * x)) / beta,
        )

    The library is kept in ``$XDG_CACHE_HOME/opwheel``: the same text is compiled once. Defined again, the operator is
    replaced.

    Args:
        schema: with a namespace of your own.
        source: with a function of the operator's name, whose parameters follow from the schema; it may use everything
            in ``opwheel/kernels.h``, and include other headers of the SDK.
        reference: the same in PyTorch's operators, called with the schema's arguments.
        rule: as in :class:`opwheel.Operator`, but for ``Elementwise()``, whose kernels are functors.
        derivatives: as in :class:`opwheel.Operator`.
        not_differentiable: as in :class:`opwheel.Operator`.
        autocast: as in :class:`opwheel.Operator`.
        flops: as in :class:`opwheel.Operator`.
        invariant: as in :class:`opwheel.Operator`.
        fake: as in :class:`opwheel.Operator`.
        doc: docstring of the function; without one it is the schema.

    Returns:
        The operator's public function.

    Raises:
        ValueError: as :func:`opwheel.define`.
        CompileError: there is no compiler, or it refuses the text: with its first errors and their lines.

    Results are not compared with the reference in calls:
    ``opwheel_tools.testing.checks.check_operators`` does that, with samples.
    """
    namespace, text = checked_schema(schema)
    full = f"{namespace}::{text}"
    qualified, name = full.partition("(")[0], text.partition("(")[0]
    if isinstance(rule, Elementwise):
        raise ValueError(
            f"{qualified}: rule is Elementwise(), whose kernels in C++ are functors of one element in a library of "
            "operators; declare Opaque() or Rows(...), or write a library (opwheel new-library)"
        )
    if not re.search(rf"\b{name}\s*\(", source):
        raise ValueError(f"{qualified}: its C++ has no function {name!r}; give the kernel the operator's name")
    check_parameters(full, "reference", reference)
    operator = Operator(
        name,
        reference=reference,
        rule=rule,
        derivatives=derivatives,
        not_differentiable=not_differentiable,
        autocast=autocast,
        flops=flops,
        invariant=invariant,
        fake=fake,
        doc=doc or full,
    )
    operators = _CppOperators(namespace, text, operator)
    operators.check()  # before the compiler, which takes seconds
    operators.compile(source)
    return install_definition(operators, sys._getframe(1).f_globals.get("__name__", namespace))


class _CppOperators(PythonOperators):
    """One operator, whose kernel is registered by a library in C++."""

    def __init__(self, namespace: str, schema: str, operator: Operator) -> None:
        super().__init__(namespace, {schema: {}}, [operator], policy_of(namespace), device_types=("cpu",))
        self._library: ctypes.CDLL | None = None
        self._registered: int | None = None

    def compile(self, source: str) -> None:
        """Compile the text and open the library.

        Raises:
            CompileError: with the first errors.
        """
        schema = self.schemas[0]
        name = schema.partition("(")[0]
        file = f"the C++ of {self.namespace}::{name}"
        names = {"file": file, "namespace": self.namespace, "name": name, "schema": json.dumps(schema)}
        try:
            self._library = _opened(name, _SOURCE.format(source=source, **names))
        except CompileError as error:
            if not error.output:
                raise
            message = f"{file} does not compile:{_shown(error.output, file, source)}"
            raise CompileError(message, error.output) from None

    def remove(self, **options: Any) -> Any:
        """As :meth:`PythonOperators.remove`. The library stays open: graphs and threads may be in it."""
        if self._library is not None and self._registered is not None:
            self._library.opwheel_defined_remove(self._registered)
            self._registered = None
        return super().remove(**options)

    def _register_kernels(self) -> None:
        assert self._library is not None  # compile() comes first
        super()._register_kernels()
        self._registered = self._library.opwheel_defined_register()


def _opened(name: str, text: str) -> ctypes.CDLL:
    compiler()  # says what is missing before the flags are made, which need it too
    from opwheel._build.ninja_file import CXX_FLAGS, LIBRARIES
    from opwheel._build.toolchain import find_torch, stable_abi_macros

    place = find_torch()
    flags = [*CXX_FLAGS, *stable_abi_macros("2.10"), f"-I{_headers()}", "-isystem", str(place.include)]
    library = open_compiled(
        kept_source(name, text),
        [*flags, f"-L{place.lib}", *LIBRARIES],
        key=f"{torch.__version__} {_digest_of_headers()}",
    )
    library.opwheel_defined_register.restype = ctypes.c_void_p
    library.opwheel_defined_remove.argtypes = [ctypes.c_void_p]
    if hasattr(library, "opwheel_set_dispatcher"):
        connect(library)
    return library


def _headers() -> Path:
    return Path(__file__).parent / "include"


@cache
def _digest_of_headers() -> str:
    digest = hashlib.sha256()
    for header in sorted(_headers().rglob("*.h")):
        digest.update(header.read_bytes())
    return digest.hexdigest()


def _shown(output: str, file: str, source: str) -> str:
    """The compiler's first errors: those in the author's text with their lines, else the first one of all."""
    found = re.findall(rf"^{re.escape(file)}:(\d+):\d+: (?:fatal )?error: (.*)$", output, re.MULTILINE)
    if not found:
        errors = re.findall(r"error: (.*)$", output, re.MULTILINE)
        asserted = [one for one in errors if "opwheel: " in one]
        return f" {[*asserted, *errors, *output.splitlines()][0].removeprefix('static assertion failed: ')}"
    lines = source.splitlines()
    shown = [f"\n  line {at}: {error}\n    {lines[int(at) - 1].strip()}" for at, error in found[:_MOST_ERRORS]]
    more = len(found) - len(shown)
    return "".join(shown) + (f"\n  and {more} more" if more else "")
