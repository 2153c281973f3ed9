"""The code that is known: by its digest, the form of what it computes.

A name stands for the code of transformers' class or function of that name, and of all that are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn, randn
from torch.testing import assert_close

from .causal_lm import CausalLM, Head, is_causal_lm
from .code_digest import UnknownCodeError, code_digest, unwrapped
from .form import Form
from .forms import Gated, Norm
from .rotations import PAIRS, RotaryEmbedding, Rotation, attention_of

TESTED = ("4.57.6", "5.23.0")
"""The releases of transformers that the tests run with."""

FORMS: dict[str, Form | Rotation] = {
    "LlamaRMSNorm": Norm("variance_epsilon", "llama"),
    "Llama4TextRMSNorm": Norm("eps", "llama"),
    "Olmo2RMSNorm": Norm("variance_epsilon", "gemma"),
    "MoshiRMSNorm": Norm("eps", "gemma"),
    "GemmaRMSNorm": Norm("eps", "gemma", offset=1.0),
    "Gemma3nRMSNorm": Norm("eps", "gemma", switch="with_scale"),
    "NanoChatRMSNorm": Norm("eps", "gemma", has_weight=False),
    "CohereLayerNorm": Norm("variance_epsilon", "layer_norm"),
    "LlamaMLP": Gated("gate_proj", "up_proj", "down_proj", "act_fn"),
    "Llama4TextMLP": Gated("gate_proj", "up_proj", "down_proj", "activation_fn"),
    "Lfm2MLP": Gated("w1", "w3", "w2", ""),
    "Phi3MLP": Gated("gate_up_proj", "", "down_proj", "activation_fn"),
    "GraniteMoeSharedMLP": Gated("input_linear", "", "output_linear", "activation"),
    "LlamaRotaryEmbedding": RotaryEmbedding(),
    "CohereRotaryEmbedding": RotaryEmbedding(PAIRS),
    "Llama's apply_rotary_pos_emb": Rotation(),
    "GPTNeoX's apply_rotary_pos_emb": Rotation(is_partial=True),
    "Cohere's apply_rotary_pos_emb": Rotation(PAIRS, interleaved=True),
    "Helium's apply_rotary_pos_emb": Rotation("first half", interleaved=True),
    "Glm's apply_rotary_pos_emb": Rotation("first half", interleaved=True, is_partial=True),
    "GptOss's apply_rotary_pos_emb": Rotation("half"),
}
"""What code computes. Of the code of two releases, or of two ways to write it, the form is one."""

DIGESTS = {
    "a7b67000a4856924": "LlamaRMSNorm",
    "b51df6000fdd7e49": "Llama4TextRMSNorm",
    "b15baa6bad228737": "Olmo2RMSNorm",
    "d92ea3d87ac19428": "Olmo2RMSNorm",  # Helium
    "9b0738a496a8c55b": "MoshiRMSNorm",
    "584e7a1e905aa158": "GemmaRMSNorm",
    "71bc1b56e699f05f": "Gemma3nRMSNorm",
    "9b665a2ae5be78cc": "NanoChatRMSNorm",
    "eb7b33d1c3d707cb": "CohereLayerNorm",
    "368b963af22e7084": "LlamaMLP",
    "adec166280b9c434": "Llama4TextMLP",
    "035cc42c235591e6": "Lfm2MLP",
    "7d5b5c0c4aae74b2": "Phi3MLP",
    "48f032f2182b49e7": "GraniteMoeSharedMLP",
    "6a9b0704b3e45e3e": "LlamaRotaryEmbedding",
    "af58f7885e22d374": "LlamaRotaryEmbedding",  # 4.57
    "e5de751a342fd58c": "LlamaRotaryEmbedding",  # Gemma3, with a type of layer
    "420e230247a6e320": "LlamaRotaryEmbedding",  # Olmo2, in float32
    "100bf7cdf18c8a2d": "LlamaRotaryEmbedding",  # Olmo2, 4.57
    "823cc8a18ca4f26d": "LlamaRotaryEmbedding",  # Olmo3, in float32 and with a type of layer
    "8fe702ad4a710b53": "CohereRotaryEmbedding",
    "3940e719da435e53": "CohereRotaryEmbedding",  # 4.57
    "f3103eda47961e96": "Llama's apply_rotary_pos_emb",
    "481b38fd37ab525a": "Llama's apply_rotary_pos_emb",  # 4.57
    "f597131a5b0caa4e": "Llama's apply_rotary_pos_emb",  # Olmo2, with the dtype of q
    "dcf5571d6c0655bd": "Llama's apply_rotary_pos_emb",  # Olmo2, 4.57
    "1b9ebaf5b8bba00a": "GPTNeoX's apply_rotary_pos_emb",
    "e1c79541147589d2": "GPTNeoX's apply_rotary_pos_emb",  # 4.57
    "e80c20b7287d67ab": "GPTNeoX's apply_rotary_pos_emb",  # Nemotron
    "1e3e0c95ccdf5ec8": "GPTNeoX's apply_rotary_pos_emb",  # Nemotron, 4.57
    "c9772d2c9d36901a": "GPTNeoX's apply_rotary_pos_emb",  # Phi3
    "4eed3a7b39f48413": "GPTNeoX's apply_rotary_pos_emb",  # Phi3, 4.57
    "51e898fb32ed2d27": "Cohere's apply_rotary_pos_emb",
    "f5bcb90d413a71e7": "Cohere's apply_rotary_pos_emb",  # 4.57
    "e03d4c8ce230568e": "Cohere's apply_rotary_pos_emb",  # Blt
    "d89334edb46ffb70": "Cohere's apply_rotary_pos_emb",  # Blt, 4.57
    "4f31dc43b0acfae4": "Helium's apply_rotary_pos_emb",  # Ernie4_5
    "bd149f7cf332d887": "Helium's apply_rotary_pos_emb",  # Ernie4_5, 4.57
    "b7c771339cda5c68": "Helium's apply_rotary_pos_emb",
    "eadd3a26790a5cf7": "Helium's apply_rotary_pos_emb",  # 4.57
    "3d5d553860df266a": "Glm's apply_rotary_pos_emb",
    "71a1ca1fd2565181": "Glm's apply_rotary_pos_emb",  # 4.57
    "787a18f3fbc5f7c0": "GptOss's apply_rotary_pos_emb",
    "f7061602cdc3c75b": "GptOss's apply_rotary_pos_emb",  # 4.57
}

_registered: dict[str, str] = {}


def register_family(forms: Mapping[Any, str]) -> None:
    """Say that code of your own computes what code of transformers does, so that :func:`patch` replaces it, too.

    It is known by its digest: a class of the same code is replaced as well, and not any more where the code has
    changed. Code that is the same as transformers' is known without this. What is registered stays so in the process.
    That a rotation computes what is said is tried here, with random numbers; a module when :func:`patch` comes to it.

    Args:
        forms: for classes of modules, and for functions that rotate queries and keys, what they compute: a key of
            ``transformer_ops.hugging_face.FORMS``, such as ``"LlamaRMSNorm"``. A class needs the attributes of that
            name, and has the arguments of ``forward``.

    Raises:
        ValueError: a form is not known, a class or function is given another kind of form, its source is not there, or
            a rotation computes something else. Nothing has been registered then.
    """
    digests = {}
    for code, name in forms.items():
        form = FORMS.get(name)
        if form is None:
            raise ValueError(f"the form of {_name_of(code)} is {name!r}, expected one of {', '.join(FORMS)}")
        is_module = isinstance(code, type) and issubclass(code, nn.Module)
        if is_module == isinstance(form, Rotation):
            expected = "a function" if isinstance(form, Rotation) else "a class of modules"
            raise ValueError(f"{_name_of(code)} has the form {name!r}, which is one of {expected}")
        try:
            digests[code_digest(code.forward, code) if is_module else code_digest(code)] = name
        except UnknownCodeError as error:
            raise ValueError(f"{_name_of(code)} cannot be registered: {error}") from error
        if isinstance(form, Rotation):
            _check_rotation(code, form, name)
    _registered.update(digests)


def _name_of(code: Any) -> str:
    return str(getattr(code, "__qualname__", code))


def _check_rotation(function: Callable[..., Any], form: Rotation, name: str) -> None:
    angles = randn(1, 3, 4)
    widened = {PAIRS: angles.repeat_interleave(2, -1), "half": angles}.get(form.tables, angles.repeat(1, 1, 2))
    arguments = randn(1, 4, 3, 8), randn(1, 2, 3, 8), widened.cos(), widened.sin()
    try:
        assert_close(tuple(function(*arguments)), tuple(form.rotate(*arguments)), rtol=1e-4, atol=1e-5)
    except (AssertionError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{_name_of(function)} does not compute what {name} does: {error}") from error


def form_of(cls: type) -> Form | None:
    """What modules of a class compute, if an operator may take the place of a part of it."""
    if issubclass(cls, nn.Linear):
        return Head()
    forward = getattr(cls, "forward", None)
    if forward is None or str(getattr(forward, "__module__", "")).startswith("torch."):
        return None
    form = _form_of_code(forward, cls)
    if form is not None and not isinstance(form, Rotation):
        return form
    if is_causal_lm(cls):
        return CausalLM()
    return attention_of(forward, _form_of_code)


def is_registered(cls: Any) -> bool:
    """Whether what modules of a class compute has been said by :func:`register_family`."""
    return _digest(cls.forward, cls) in _registered


def _form_of_code(function: Any, owner: type | None = None) -> Form | Rotation | None:
    digest = _digest(function, owner)
    return FORMS.get(_registered.get(digest, DIGESTS.get(digest, "")))


def _digest(function: Any, owner: type | None) -> str:
    try:
        return code_digest(function, owner)
    except UnknownCodeError:
        return ""


def why_unknown(cls: Any) -> str:
    """Why the ``forward`` of a class is not known."""
    if cls.__name__.endswith("Attention"):
        return "its forward does not call a rotation of known code" + _rotations_of(cls.forward)
    try:
        digest = code_digest(cls.forward, cls)
    except UnknownCodeError as error:
        return f"the code of its forward cannot be told: {error}"
    return f"the code of its forward is not known, digest {digest}"


def _rotations_of(forward: Any) -> str:
    """What looks like a rotation in the code of attention, with its digest."""
    try:
        code = unwrapped(forward)
    except UnknownCodeError as error:
        return f": {error}"
    names = [name for name in code.__code__.co_names if "rotary" in name and name in code.__globals__]
    return "".join(
        f"; {name} has the digest {_digest(code.__globals__[name], None) or 'of no source'}" for name in names
    )


def sample_differs(module: Any, form: Form, own: Callable[..., Any]) -> str:
    """How the results of a module of a registered class differ from those of its form; empty if they do not."""
    arguments = form.sample(module)
    if arguments is None:
        return ""
    try:
        expected: Tensor = own(module, *arguments)
        assert_close(form.forward(own)(module, *arguments), expected, rtol=1e-2, atol=1e-2)
    except (AssertionError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        return f"it does not compute what was registered: {str(error).splitlines()[0]}"
    return ""
