"""What a call or a program is told that misses a backend: which one it should be, and why it is not loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .errors import BackendUnavailableError, NoKernelError
from .policy import KnownBackend, Policy
from .resolution import Claim
from .status import BackendStatus, State
from .statuses import describe

# Of several backends for a device, the error of a failed call is about the one that is closest to working.
_CLOSEST_FIRST = (State.LOADED, State.BROKEN, State.INCOMPATIBLE, State.UNSUPPORTED, State.DISABLED, State.SHADOWED)


def no_kernel_error(
    qualified_name: str,
    device_type: str,
    statuses: Mapping[str, BackendStatus],
    claims: Mapping[str, Claim],
    plugins: Collection[str],
    policy: Policy,
) -> NoKernelError:
    """The error of a call with plain tensors, caused by what broke the backend that should have had a kernel.

    Of a backend that was not asked what it claims, it is assumed that it has every operator.

    Args:
        qualified_name: of the operator, with the namespace.
        device_type: of the tensors.
        statuses: of all backends, by name.
        claims: of the backends that were asked, by name.
        plugins: names of the installed ones, with those that were not asked yet.
        policy: names backends that one can install.
    """
    namespace, _, operator = qualified_name.partition("::")
    here = [status for status in statuses.values() if status.device_type == device_type]
    nameless = [status for status in statuses.values() if not status.device_type]  # broken before they could say it
    able = [status for status in here if _may_have(operator, status, claims)] if here else nameless
    closest = min(able, key=_distance, default=None)
    if closest is not None and closest.state is State.LOADED:
        reason = "only plain dense tensors are supported, no special ones"
    else:
        reasons = [_why_not_covered(operator, status, claims) for status in here if status not in able]
        if closest is None:
            names = [known.name for known in _installable(device_type, policy) if known.name not in statuses]
            reasons += [_not_installed(name, statuses, plugins, policy) for name in names]
        else:
            unknown = "" if closest.device_type else "no backend is known to be for this device, but "
            reasons.append(f"{unknown}{describe(closest)}")
        reason = "; ".join(reasons) or "no installed backend is for this device"
    variable = f"{namespace.upper()}_FALLBACK=reference"
    hint = f"`{namespace} doctor` explains more, {variable} computes with ATen instead"
    error = NoKernelError("OPWHEEL-E001", f"{_what(qualified_name, device_type)}: {reason}; {hint}")
    error.__cause__ = closest.exception if closest else None
    return error


def wrong_layout_error(qualified_name: str, device_type: str, layout: str) -> NoKernelError:
    """The error of a call with tensors of a layout for which no backend can have a kernel, such as sparse ones."""
    what = f"{_what(qualified_name, device_type)} of layout {layout}"
    return NoKernelError("OPWHEEL-E001", f"{what}; convert them with .to_dense()")


def quantized_error(qualified_name: str, device_type: str, argument: str, dtype: str) -> NoKernelError:
    """The error of a call with a quantised tensor, which has values only together with a scale and a zero point."""
    what = f"{_what(qualified_name, device_type)} that are quantised, and argument {argument!r} is {dtype}"
    fix = "convert it with .dequantize(), or write an operator that takes .int_repr(), scale and zero point"
    return NoKernelError("OPWHEEL-E001", f"{what}; {fix}")


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


def _installable(device_type: str, policy: Policy) -> list[KnownBackend]:
    """The backends that one can install for the device, the preferred ones first."""
    known = [known for known in policy.backends.values() if known.device == device_type]
    return sorted(known, key=lambda one: policy.rank(one.dispatch_key, one.name))


def _may_have(operator: str, status: BackendStatus, claims: Mapping[str, Claim]) -> bool:
    """Whether a loaded backend has the operator, or another one would have claimed it."""
    if status.state is State.LOADED:
        return operator in status.operators
    return status.name not in claims or operator in claims[status.name].operators


def _why_not_covered(operator: str, status: BackendStatus, claims: Mapping[str, Claim]) -> str:
    """Why it has no kernel for the operator, and what to do if it was meant to have one."""
    changed = claims[status.name].changed.get(operator) if status.name in claims else None
    why = f"cannot compute it: {changed}; to fix it: pip install --upgrade {status.distribution}" if changed else ""
    return f"the backend {status.name!r} ({status.distribution} {status.version}) {why or 'does not cover it'}"


def _distance(status: BackendStatus) -> tuple[int, str]:
    return _CLOSEST_FIRST.index(status.state), status.name
