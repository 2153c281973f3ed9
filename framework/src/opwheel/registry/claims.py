"""Checks that a backend claims what exists: operators of the library, and the dispatch key of its device."""

from __future__ import annotations

from collections.abc import Iterable

from .._torch.private import dispatch_key_of, why_no_device
from .backend import Backend
from .dispatcher import is_dispatch_key
from .loading import LoadError
from .schemas import Core
from .values import ALL


def check_claim(backend: Backend, core: Core) -> None:
    """Compare a backend's operators, dispatch key and device type with the library's and PyTorch's.

    Raises:
        LoadError: naming what does not exist, or does not belong together.
    """
    _check_names(backend.operators or (), "claims", "operators=[{0!r}]", core)
    named = set(backend.not_invariant) - {ALL}
    _check_names(named, "names in not_invariant=", 'not_invariant={{{0!r}: ["batch"]}}', core)
    key, device = backend.dispatch_key, backend.device_type
    # Whether a package has registered the device is seen when the backend is loaded: its probe may import it.
    absent = why_no_device(device)
    expected = "PrivateUse1" if absent else dispatch_key_of(device)
    if key == expected and key != "Meta":
        return
    fix = f'write dispatch_key="{expected}" for device_type="{device}"'
    other = 'write dispatch_key="CPU" and device_type="cpu", or those of another device'
    if not is_dispatch_key(core.namespace, core.operators[0], key):
        reason = f"PyTorch knows no dispatch key {key!r}"
    elif absent:
        reason = f"it claims {key!r}, but {absent}"
        fix = f'write the device_type of {key!r} tensors, or dispatch_key="PrivateUse1" for a device of a package'
    elif expected == key:
        reason, fix = f"it claims 'Meta', where {core.distribution} computes shapes", other
    elif expected is None:
        reason, fix = f"PyTorch has no dispatch key for {device!r} tensors", other
    else:
        reason = f"it claims {key!r}, but kernels for {device!r} tensors are at {expected!r}"
    raise LoadError("OPWHEEL-E022", reason, fix)


def _check_names(given: Iterable[str], does: str, example: str, core: Core) -> None:
    """Refuse names that are no operators of the library."""
    unknown = sorted(set(given) - set(core.operators))
    if unknown:
        field = example.partition("=")[0]
        raise LoadError(
            "OPWHEEL-E022",
            f"it {does} operators that do not exist: {', '.join(unknown)}",
            f"name in {field}= those of `{core.namespace} explain`, such as {example.format(core.operators[0])}",
        )
