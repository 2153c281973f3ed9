"""What the registry raises. Every failure has a code, which :mod:`.error_codes` explains."""

from __future__ import annotations

import copyreg
from typing import Any

from ..text import printable


class CodedError(Exception):
    """An exception with a code, which is copied and pickled without its constructor.

    Python would call the constructor with ``args``, which is the text, and fail where it takes other arguments: the
    process that waits for the exception of another would then wait forever.
    """

    code: str

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class RegistryError(RuntimeError, CodedError):
    """Base class; ``code`` is a key of :data:`~opwheel.registry.ERROR_CODES`, ``message`` the text without it.

    What plugins and files have put into the text is escaped: it has no control characters.
    """

    def __init__(self, code: str, message: str) -> None:
        message = printable(message)
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message


class NoKernelError(RegistryError, NotImplementedError):
    """An operator was called on a device that no loaded backend serves."""


class BackendUnavailableError(RegistryError):
    """A backend that was asked for is not loaded, or does not keep the claims that were asked for."""


class PolicyError(RegistryError, ValueError):
    """A policy file or environment variable is not valid."""


class ForeignOperatorError(RegistryError):
    """Kernels for operators that others define cannot be switched on or off."""


class LockError(RegistryError):
    """The installation is not what the lock file says, or one of the two cannot be used."""


class InvalidBackendError(RegistryError, ValueError):
    """A plugin's description of its backend is not valid; ``fix`` is what its author changes."""

    def __init__(self, code: str, message: str, fix: str = "") -> None:
        super().__init__(code, message)
        self.fix = fix
