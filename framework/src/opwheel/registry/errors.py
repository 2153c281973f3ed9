"""What the registry raises. Every failure has a code, which :mod:`.error_codes` explains."""


class RegistryError(RuntimeError):
    """Base class; ``code`` is a key of :data:`~opwheel.registry.ERROR_CODES`, ``message`` the text without it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message


class NoKernelError(RegistryError, NotImplementedError):
    """An operator was called on a device that no loaded backend serves."""


class BackendUnavailableError(RegistryError):
    """A backend that was asked for is not loaded."""


class PolicyError(RegistryError, ValueError):
    """A policy file or environment variable is not valid."""


class LockError(RegistryError):
    """The installation is not what the lock file says, or one of the two cannot be used."""


class InvalidBackendError(RegistryError, ValueError):
    """A plugin's description of its backend is not valid."""
