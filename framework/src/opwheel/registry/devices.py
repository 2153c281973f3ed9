"""Devices that a package has to register with PyTorch before a backend can compute on them: PrivateUse1."""

from __future__ import annotations

from .backend import Probe


def probe_device(device_type: str) -> Probe:
    """Whether PyTorch finds a device in this process: the probe of a backend that needs nothing else of the machine.

    Args:
        device_type: as ``torch.device`` calls it, such as ``"cuda"``, or ``"npu"`` of a package.

    Returns:
        A probe that says no and names the call that is missing, where the device's package has not registered it, or
        not its module.
    """
    import torch  # a plugin's module can be imported without

    from .._torch.private import why_no_device

    absent = why_no_device(device_type)
    if absent:
        return Probe(False, absent, how_to_register(device_type))
    module = getattr(torch, device_type, None)
    if module is None:
        call = f"torch._register_device_module({device_type!r}, module)"
        reason = f"PyTorch has the name {device_type!r} of a device, but no module torch.{device_type}"
        return Probe(False, reason, f"import the package that brings the device; it is to call {call}")
    if not callable(getattr(module, "is_available", None)):
        reason = f"torch.{device_type} has no function is_available"
        fix = "the package that brings the device is to define it in what it gives to torch._register_device_module"
        return Probe(False, reason, fix)
    if not module.is_available():
        reason = f"torch {torch.__version__} finds no {device_type} device in this machine"
        return Probe(False, reason, "check its driver, and the build of torch or of the package that brings the device")
    return Probe(True)


def how_to_register(device_type: str) -> str:
    """What to do about a device that no package has registered."""
    calls = f"torch.utils.rename_privateuse1_backend({device_type!r}) and torch._register_device_module(...)"
    return f"import the package that brings the device, which calls {calls}, or correct the plugin's device_type"
