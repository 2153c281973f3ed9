"""One operator at one dispatch key: our kernel in the place of the one that was there, and removed again.

``csrc/foreign`` has the kernel in C++; where there is no native library for this PyTorch, and with
``OPWHEEL_AUTOGRAD=python``, it is :mod:`.kernel`.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

import torch

from .._torch import private
from .._torch.native import open_library
from ..registry.errors import ForeignOperatorError
from .declaration import ForeignKernel
from .kernel import ForeignPythonKernel, Rules
from .owners import check_free, check_on_top, mark, owners

_MESSAGE_BYTES = 2000


class Override:
    """A registered kernel; :meth:`remove` takes it away again.

    Args:
        namespace: of the library.
        declaration: of the kernel.
        key: one of :func:`keys_of`.

    Attributes:
        kind: ``"native"`` or ``"python"``.

    Raises:
        ForeignOperatorError: the place has an owner, or the declaration does not fit the operator.
    """

    def __init__(self, namespace: str, declaration: ForeignKernel, key: str) -> None:
        self.operator = declaration.operator
        self.key = key
        self._namespace = namespace
        check_free(self.operator, key, namespace)
        try:
            rules = Rules(declaration, private.schema_of(self.operator))
        except ValueError as error:
            raise ForeignOperatorError("OPWHEEL-E100", f"{namespace}, {self.operator}: {error}") from None
        previous = torch.library.get_kernel(self.operator, key)
        kernel = ForeignPythonKernel(declaration, rules, previous.call_boxed)
        native = library()
        self.kind = "python" if isinstance(native, str) else "native"
        self._helpers: torch.library.Library | None = None
        if isinstance(native, str):
            self._registered = private.override_kernel(self.operator, key, kernel, mark(namespace))
        else:
            self._registered = self._install(native, kernel, rules)
        owners[self.operator, key] = namespace

    def remove(self) -> None:
        """Let the dispatcher be as it was before.

        Raises:
            ForeignOperatorError: somebody has registered another kernel over it.
        """
        check_on_top(self.operator, self.key, self._namespace)
        native = library()
        if isinstance(native, str):
            self._registered.reset()
        else:
            native.opwheel_foreign_remove(self._registered)
        if self._helpers is not None:
            private.destroy_library(self._helpers)
        del owners[self.operator, self.key]

    def _install(self, native: ctypes.CDLL, kernel: ForeignPythonKernel, rules: Rules) -> int:
        """Register the kernel in C++, and the two operators that it calls: ours, and the decision in Python."""
        namespace, _, name = self.operator.partition("::")
        base, _, overload = name.partition(".")
        signature = str(private.schema_of(self.operator)).partition("(")[2]
        space = f"{self._namespace}_foreign"
        self._helpers = torch.library.Library(space, "FRAGMENT")
        words = [f"{namespace}::{base} {overload or 'default'}"]
        for helper, function in (("ours", kernel.ours), ("decide", kernel.__call__)):
            helper = f"{namespace}_{base}_{overload or 'default'}_{self.key}_{helper}"
            self._helpers.define(f"{helper}({signature}")
            self._helpers.impl(helper, function, "CompositeImplicitAutograd", with_keyset=helper.endswith("_decide"))
            words.append(f"{space}::{helper} default")
        words += [self.key, str(len(rules.conditions)), *(condition.native for condition in rules.conditions)]
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        handle: int | None = native.opwheel_foreign_install(
            "\n".join(words).encode(), mark(self._namespace).encode(), message, _MESSAGE_BYTES
        )
        if not handle:
            private.destroy_library(self._helpers)
            why = message.value.decode(errors="replace")
            raise ForeignOperatorError("OPWHEEL-E100", f"{self._namespace}, {self.operator} at {self.key}: {why}")
        return handle


def keys_of(operator: str, device_type: str) -> tuple[str, ...]:
    """The dispatch keys at which a kernel for a device has to be.

    What PyTorch composes of differentiable operators has no derivative of its own: with a kernel at the backend's key
    alone, Autograd would not look into it any more, and derivatives would be lost. So it gets one at Autograd, too:
    first, because the kernel that was there can be had only while there is none at the backend's key.
    """
    key = str(private.dispatch_key_of(device_type))
    is_composite = private.has_kernel(operator, "CompositeImplicitAutograd")
    own_derivative = private.has_kernel(operator, "Autograd") or private.has_kernel(operator, f"Autograd{key}")
    return (f"Autograd{key}", key) if is_composite and not own_derivative else (key,)


@cache
def library() -> ctypes.CDLL | str:
    """The native library, or why there is none."""
    if os.environ.get("OPWHEEL_AUTOGRAD") == "python":
        return "OPWHEEL_AUTOGRAD=python"
    opened = open_library("foreign")
    if isinstance(opened, str):
        return opened
    opened.opwheel_foreign_install.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    opened.opwheel_foreign_install.restype = ctypes.c_void_p
    opened.opwheel_foreign_remove.argtypes = [ctypes.c_void_p]
    return opened
