"""What a call or a program is told that misses a backend: which one it should be, and why it is not loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .errors import BackendUnavailableError, NoKernelError
from .policy import Policy
from .status import BackendStatus, State
from .statuses import describe

# Of several backends for a device, the error of a failed call is about the one that is closest to working.
_CLOSEST_FIRST = (State.LOADED, State.BROKEN, State.INCOMPATIBLE, State.UNSUPPORTED, State.DISABLED, State.SHADOWED)


def no_kernel_error(
    qualified_name: str,
    device_type: str,
    statuses: Mapping[str, BackendStatus],
    plugins: Collection[str],
    policy: Policy,
) -> NoKernelError:
    """The error of a call with plain tensors, caused by what broke the backend that should have had a kernel.

    Args:
        qualified_name: of the operator, with the namespace.
        device_type: of the tensors.
        statuses: of all backends, by name.
        plugins: names of the installed ones, with those that were not asked yet.
        policy: names backends that one can install.
    """
    namespace, _, operator = qualified_name.partition("::")
    status = _closest(device_type, statuses)
    known = [known.name for known in policy.backends.values() if known.device == device_type]
    if status is None:
        missing = _not_installed(known[0], statuses, plugins, policy) if known else ""
        reason = missing or "no installed backend is for this device"
    elif not status.device_type:
        reason = f"no backend is known to be for this device, but {describe(status)}"
    elif status.state is not State.LOADED:
        reason = describe(status)
    elif operator not in status.operators:
        reason = f"the backend {status.name!r} ({status.distribution} {status.version}) does not cover it"
    else:
        reason = "only plain dense tensors are supported, not quantised, nested or other special ones"
    variable = f"{namespace.upper()}_FALLBACK=reference"
    hint = f"`{namespace} doctor` explains more, {variable} computes with ATen instead"
    error = NoKernelError("OPWHEEL-E001", f"{_what(qualified_name, device_type)}: {reason}; {hint}")
    error.__cause__ = status.exception if status else None
    return error


def wrong_layout_error(qualified_name: str, device_type: str, layout: str) -> NoKernelError:
    """The error of a call with tensors of a layout for which no backend can have a kernel, such as sparse ones."""
    what = f"{_what(qualified_name, device_type)} of layout {layout}"
    return NoKernelError("OPWHEEL-E001", f"{what}; convert them with .to_dense()")


def check_loaded(name: str, statuses: Mapping[str, BackendStatus], plugins: Collection[str], policy: Policy) -> None:
    """Check that a backend that somebody requires is loaded.

    Raises:
        BackendUnavailableError: it is not: why, and what to do.
    """
    status = statuses.get(name)
    if status is None:
        raise BackendUnavailableError("OPWHEEL-E002", _not_installed(name, statuses, plugins, policy))
    if status.state is not State.LOADED:
        raise BackendUnavailableError("OPWHEEL-E002", describe(status)) from status.exception


def _not_installed(name: str, statuses: Mapping[str, BackendStatus], plugins: Collection[str], policy: Policy) -> str:
    """Why there is no status of a backend that somebody asks for."""
    if name in plugins:
        return f"the backend {name!r} is not loaded yet: the import of a plugin that led to this one is not complete"
    known = policy.backends.get(name)
    if known is None:
        return f"no backend {name!r} is installed; installed are: {', '.join(sorted(statuses)) or 'none'}"
    from .absence import find_absence  # most programs have all that they ask for

    hint = known.hint or f"pip install {known.distribution}"
    return f"the backend {name!r} {find_absence(known.distribution, hint)}"


def _what(qualified_name: str, device_type: str) -> str:
    return f"{qualified_name} has no kernel for {device_type} tensors"


def _closest(device_type: str, statuses: Mapping[str, BackendStatus]) -> BackendStatus | None:
    """Of the backends for the device, the one closest to working; else one that did not get to name its device."""
    concerned = [status for status in statuses.values() if status.device_type in (device_type, "")]
    return min(concerned, key=lambda s: (not s.device_type, _CLOSEST_FIRST.index(s.state)), default=None)
