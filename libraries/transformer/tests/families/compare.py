"""Compares a tiny random model of each causal family of transformers with itself after transformer_ops.patch.

    python compare.py llama gemma2     # prints a line of JSON for each; run as a script, in a process of its own

A line has the family, its ``state`` ("replaced", "nothing replaced", "not run", "differs"), the numbers of
modules by operator, the reasons of those that were not replaced, and the largest error of loss, logits and gradients.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import warnings
from collections import Counter
from typing import Any

import torch
import transformer_ops
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

VOCABULARY, LAYERS, TOKENS = 96, 2, 16
# What makes a model small, by the names that configurations have for it. Values that a family refuses are left out.
SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input", "embedding_size"), VOCABULARY),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "model_dim", "emb_dim", "hidden_dim"), 64),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "encoder_ffn_dim"), 96),
    **dict.fromkeys(("decoder_ffn_dim", "intermediate_size_mlp", "shared_expert_intermediate_size"), 96),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size", "d_inner"), 96),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers"), LAYERS),
    "encoder_layers": LAYERS,
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    "encoder_attention_heads": 4,
    **dict.fromkeys(("num_key_value_heads", "num_global_key_value_heads"), 2),
    "head_dim": 16,
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k"), 2),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 32),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 16),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
    "hidden_size_per_layer_input": 16,
    "encoder_hash_byte_group_vocab": VOCABULARY,
    "num_kv_shared_layers": 0,
    "rotary_dim": 8,
    "attention_types": [[["global", "local"], 1]],
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# Other sizes, for families that these do not fit.
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"num_key_value_heads": 4},
    {"rotary_dim": None},
    dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), 8),
    dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
    {"num_key_value_heads": None, "head_dim": None},
    {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32},
    {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
    {
        name: None
        for name in SMALL
        if name not in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    },
)
DEPTHS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
LARGEST = 50_000_000  # parameters: a configuration has sizes that are not known here
LONGEST = 60  # seconds
TOLERANCE = 2e-5  # of the largest element: norms and losses are computed in float32 by the models themselves


def main() -> None:
    """A line for each family that is named."""
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _stop)
    for family in sys.argv[1:]:
        signal.alarm(LONGEST)
        try:
            record = compare(family)
        except TimeoutError:
            record = {"family": family, "state": "not run", "reason": f"it takes more than {LONGEST} seconds"}
        print(json.dumps(record), flush=True)


def _stop(*_: Any) -> None:
    raise TimeoutError


def families() -> list[str]:
    """The configurations that have a causal model."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def compare(family: str) -> dict[str, Any]:
    """The record of one family."""
    record: dict[str, Any] = {"family": family}
    reasons = []
    for variant in VARIANTS:
        try:
            model = build(family, variant)
            expected, again = results(model), results(model)
        except TimeoutError:
            raise
        except Exception as error:  # whatever a family refuses
            reasons.append(_short(error))
        else:
            break
    else:
        return record | {"state": "not run", "reason": reasons[0]}
    record["class"] = type(model).__name__
    if _error(expected, again) > TOLERANCE:
        return record | {"state": "not run", "reason": "two calls of the model give two results"}
    try:
        patch = transformer_ops.patch(model)
    except ValueError as error:
        return record | {"state": "nothing replaced", "reason": _short(error)}
    record["replaced"] = dict(sorted(patch.operators().items()))
    record["not_replaced"] = dict(sorted(Counter(patch.not_replaced.values()).items()))
    found = results(model)
    error = _error(expected, found)
    return record | {"state": "replaced" if error <= TOLERANCE else "differs", "error": float(f"{error:.1e}")}


def build(family: str, variant: dict[str, Any]) -> Any:
    """A model in float64, in training, without dropout, whose parameters are random."""
    torch.manual_seed(0)
    cls = getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family])
    config = small(cls.config_class or CONFIG_MAPPING[family], SMALL | variant)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in cls(config).parameters())
    if size > LARGEST:
        raise ValueError(f"its smallest model has {size} parameters")
    model = cls(config).double().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn_like(parameter) * 0.1)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def small(cls: Any, sizes: dict[str, Any]) -> Any:
    """A configuration of few and small layers, with those of the models inside of it."""
    options = _options(cls, sizes)
    for inner, of in getattr(cls, "sub_configs", {}).items():
        if hasattr(of, "sub_configs") and of.__name__ != "AutoConfig":
            options[inner] = small(of, sizes).to_dict()
    while True:
        try:
            return _without_chance(cls(**options))
        except Exception as error:  # a value that this family refuses, by its name
            names = {name: getattr(cls, "attribute_map", {}).get(name, name) for name in options}
            named = [name for name in options if re.search(rf"\b({name}|{names[name]})\b", str(error))]
            if not named:
                raise
            del options[named[0]]


def _options(cls: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    default = cls()
    options = {name: value for name, value in sizes.items() if value is not None and _has(default, name)}
    for name in ("layer_types", "layers_block_type", "mlp_layer_types", "block_types"):
        kinds = getattr(default, name, None) if _has(default, name) else None
        if isinstance(kinds, (list, tuple)) and kinds:
            distinct = list(dict.fromkeys(kinds))
            count = next((options[one] for one in DEPTHS if one in options), LAYERS)
            options[name] = (distinct * count)[: max(count, len(distinct))]
            options.update({one: len(options[name]) for one in DEPTHS if one in options})
    return options


def _has(config: Any, name: str) -> bool:
    """Whether a configuration has a value of that name, which can be set."""
    if isinstance(prop := getattr(type(config), name, None), property):
        return prop.fset is not None
    try:
        return hasattr(config, name)
    except Exception:  # of a value that differs by layer
        return True


def _without_chance(config: Any) -> Any:
    for name in dir(config):
        is_dropped = re.search("drop|jitter", name) and isinstance(getattr(config, name, None), float)
        if is_dropped and not name.startswith("_"):
            setattr(config, name, 0.0)
    config.is_decoder = True
    config._experts_implementation = "eager"
    return config


def results(model: Any) -> list[torch.Tensor]:
    """Loss, logits and the gradients of all parameters."""
    torch.manual_seed(0)
    tokens = torch.arange(2 * TOKENS).reshape(2, TOKENS) * 7 % (VOCABULARY - 3) + 3
    labels = tokens.clone()
    labels[0, :3] = -100
    out = model(input_ids=tokens, labels=labels, use_cache=False)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(out.loss, parameters, allow_unused=True)
    return [out.loss.detach(), out.logits.detach(), *(one for one in gradients if one is not None)]


def _error(expected: list[torch.Tensor], found: list[torch.Tensor]) -> float:
    if [one.shape for one in expected] != [one.shape for one in found]:
        return float("inf")
    largest = max(float(one.abs().max()) for one in expected[2:])
    errors = [0.0]
    for one, other in zip(expected, found, strict=True):
        # Some gradients are zero but for rounding, as those of the keys' biases.
        error = (one - other).abs().max() / one.abs().max().clamp_min(1e-3 * largest)
        errors.append(float("inf") if error.isnan() else float(error))
    return max(errors)


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:150]}"


if __name__ == "__main__":
    main()
