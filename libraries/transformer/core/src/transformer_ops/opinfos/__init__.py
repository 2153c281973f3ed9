"""What tests and benchmarks need of the operators, a family a file as in ``operators/``; tools alone import it."""

from opwheel_tools import OpInfo

from . import (
    activations,
    attention,
    attention_qkvpacked,
    cache,
    cross_entropy,
    fused_linear_cross_entropy,
    layer_norm,
    linear,
    quantize,
    rms_norm,
    rope,
    softmax,
)

OP_INFOS: dict[str, OpInfo] = {
    **rms_norm.INFOS,
    **layer_norm.INFOS,
    **activations.INFOS,
    **softmax.INFOS,
    **rope.INFOS,
    **attention.INFOS,
    **attention_qkvpacked.INFOS,
    **cross_entropy.INFOS,
    **fused_linear_cross_entropy.INFOS,
    **linear.INFOS,
    **quantize.INFOS,
    **cache.INFOS,
}
