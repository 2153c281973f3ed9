"""Which code transformer_ops.patch knows: by what it is, not by what it is called."""

import linecache
import sys
import types

import pytest
import torch
import transformer_ops
from torch import nn

transformers = pytest.importorskip("transformers")

NORM = '''
import torch
from torch import nn

class {name}(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size))
        self.variance_epsilon = 1e-3

    def forward(self, hidden_states{annotation}):
        """Somebody's own words."""
        input_dtype = hidden_states.dtype  # and notes
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to({dtype})
'''


def module_of(source, name="somebodys_model"):
    """A module of source code, which can be looked up."""
    module, path = types.ModuleType(name), f"<{name} {hash(source)}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    exec(compile(source, path, "exec"), vars(module))
    return module


def test_the_same_code_under_another_name_is_replaced():
    code = NORM.format(name="Anything", annotation=": 'torch.Tensor'", dtype="input_dtype")
    model = nn.Sequential(module_of(code).Anything(16))
    x = torch.randn(3, 16)
    expected = model(x)
    assert transformer_ops.patch(model).replaced == {"0": "rms_norm"}
    torch.testing.assert_close(model(x), expected)
    torch.testing.assert_close(model[0](hidden_states=x), expected)


def test_other_code_under_the_same_name_is_not():
    code = NORM.format(name="LlamaRMSNorm", annotation="", dtype="torch.float16")
    with pytest.raises(
        ValueError, match=r"1 LlamaRMSNorm \(the code of its forward is not known, digest [0-9a-f]{16}\)"
    ):
        transformer_ops.patch(module_of(code).LlamaRMSNorm(16))


def test_a_file_that_was_edited_after_it_was_loaded_is_not():
    known = NORM.format(name="Norm", annotation="", dtype="input_dtype")
    cls = module_of(known.replace("input_dtype)", "torch.float16)")).Norm
    path = cls.forward.__code__.co_filename
    linecache.cache[path] = (len(known), None, known.splitlines(keepends=True), path)
    with pytest.raises(ValueError, match="Norm can be replaced"):
        transformer_ops.patch(cls(16))


def test_a_function_that_is_called_counts(monkeypatch):
    home = __import__("transformers.models.llama.modeling_llama", fromlist=["x"])
    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config)
    monkeypatch.setattr(home, "rotate_half", module_of("def rotate_half(x):\n    return -x\n").rotate_half)
    reason = transformer_ops.patch(model).not_replaced["model.layers.0.self_attn"]
    assert "its forward does not call a rotation of known code; apply_rotary_pos_emb has the digest" in reason


OWN = """
import torch
from torch import nn

class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size))
        self.variance_epsilon = 1e-3

    def forward(self, rows):
        return self.weight * rows / (rows.square().mean(-1, keepdim=True) + self.variance_epsilon).sqrt()

class Wrong(Norm):
    def forward(self, rows):
        return self.weight * rows / (rows.square().sum(-1, keepdim=True) + self.variance_epsilon).sqrt()

def turn(q, k, cos, sin):
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    half = q.shape[-1] // 2
    return tuple(x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin for x in (q, k))
"""


def test_registered_families():
    own = module_of(OWN)
    with pytest.raises(ValueError, match="no module of Norm can be replaced"):
        transformer_ops.patch(own.Norm(16))
    transformer_ops.register_family({own.Norm: "LlamaRMSNorm", own.turn: "Llama's apply_rotary_pos_emb"})
    model, x = own.Norm(16), torch.randn(3, 16)
    expected = model(x)
    assert transformer_ops.patch(model).replaced == {"": "rms_norm"}
    torch.testing.assert_close(model(x), expected)
    transformer_ops.register_family({own.Wrong: "LlamaRMSNorm"})
    with pytest.raises(ValueError, match=r"Wrong \(it does not compute what was registered"):
        transformer_ops.patch(own.Wrong(16))


def test_what_cannot_be_registered():
    own = module_of(OWN)
    refused = [
        ({own.Norm: "RMSNorm"}, "the form of Norm is 'RMSNorm', expected one of LlamaRMSNorm, "),
        ({own.turn: "LlamaRMSNorm"}, "turn has the form 'LlamaRMSNorm', which is one of a class of modules"),
        ({own.Norm: "Llama's apply_rotary_pos_emb"}, "which is one of a function"),
        ({own.turn: "Cohere's apply_rotary_pos_emb"}, "turn does not compute what Cohere's apply_rotary_pos_emb does"),
        ({eval("lambda q, k, cos, sin: (q, k)"): "Llama's apply_rotary_pos_emb"}, "its source cannot be found"),
    ]
    for forms, reason in refused:
        with pytest.raises(ValueError, match=reason):
            transformer_ops.register_family(forms)


def test_a_release_that_has_not_been_tested_is_named(monkeypatch):
    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    patch = transformer_ops.patch(transformers.LlamaForCausalLM(config))
    assert not patch.note
    patch.restore()
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "99.0")
    patch = transformer_ops.patch(transformers.LlamaForCausalLM(config))
    assert "; transformers 99.0 has not been tested (4.57.6, 5.23.0 have)" in str(patch)
