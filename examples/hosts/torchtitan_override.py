"""transformer_ops in torchtitan: an override of its RMS norm.

torchtitan calls it when the command line names it: ``--override.imports torchtitan_override.transformer_ops_rms_norm``.
"""

from dataclasses import dataclass
from importlib.metadata import version

import transformer_ops
from torch import Tensor
from torchtitan.config import derive, override
from torchtitan.models.common.nn_modules import RMSNorm

KNOWN_VERSIONS = ("0.3.0",)

if version("torchtitan") not in KNOWN_VERSIONS:
    raise ImportError(f"torchtitan is {version('torchtitan')}; known are {', '.join(KNOWN_VERSIONS)}")


class OurRMSNorm(RMSNorm):
    """torchtitan's RMS norm with the same parameters and state dict, computed by ``transformer_ops.rms_norm``."""

    @dataclass(kw_only=True, slots=True)
    class Config(RMSNorm.Config):
        """The fields of torchtitan's."""

    def forward(self, x: Tensor) -> Tensor:
        """The normalised rows; as PyTorch's, in float32, rounded once."""
        return transformer_ops.rms_norm(x, self.weight, self.eps, 0.0, "gemma")


@override(target=RMSNorm.Config, exact=True, description="RMS norm by transformer_ops")
def transformer_ops_rms_norm(config: RMSNorm.Config) -> OurRMSNorm.Config:
    """What takes the place of a configuration; other subclasses of torchtitan's norm stay."""
    return derive(config, OurRMSNorm.Config)
