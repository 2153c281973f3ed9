"""Compiled programs that write: into given tensors and in place, beside copies that inductor removes."""

import pytest
import torch
import transformer_ops
from torch._inductor.utils import run_and_get_code


def into_a_copy(x, w):
    x = x.sin()
    y = x.clone()
    transformer_ops.rms_norm(x, w, out=y)
    return y


def into_a_copy_of_a_result(x, w):
    x = transformer_ops.rms_norm(x, w)
    y = x.clone()
    transformer_ops.swiglu(x, x, out=y)
    return y, x


def into_a_part(x, w):
    y = x.new_zeros(2, *x.shape)
    transformer_ops.rms_norm(x, w, out=y[1])
    return y


def into_an_input(x, w):
    y = x.clone()
    z = transformer_ops.rms_norm(y, w, out=x)
    return z.sum() + x


def caches_of_their_keys(x, w):
    x = x.sin() * w
    keys, blocks = x.view(-1, 2, 4), x.view(1, -1, 2, 4)
    key_cache, value_cache = blocks.clone(), blocks.clone()
    slots = torch.arange(len(keys), device=x.device).flip(0)
    transformer_ops.reshape_and_cache(keys, keys, key_cache, value_cache, slots)
    return key_cache, value_cache


def weights_of_the_residual(x, w):
    x = x.cos()
    y = x[0].clone()
    transformer_ops.fused_add_rms_norm_(y, x[1] * w, x[0])
    return y


def copies_of_parts(x, w):
    x = x.cos()
    y, z = x[2].clone(), x[1].clone()
    transformer_ops.fused_add_rms_norm_(y, z, w)
    return y, z, x


def views_of_copies_of_parts(x, w):
    x = x.cos()
    y = x[1].clone()
    transformer_ops.fused_add_rms_norm_(y.view(2, 4).t(), x.new_ones(4, 2))
    return y


PROGRAMS = [
    into_a_copy,
    into_a_copy_of_a_result,
    into_a_part,
    into_an_input,
    caches_of_their_keys,
    weights_of_the_residual,
    copies_of_parts,
    views_of_copies_of_parts,
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("backend", "dynamic"), [("aot_eager", False), ("inductor", False), ("inductor", True)])
def test_what_is_written(program, backend, dynamic, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    x, w = torch.randn(4, 8, dtype=torch.float64), torch.rand(8, dtype=torch.float64)
    mine, theirs = x.clone(), x.clone()
    found = torch.compile(program, backend=backend, dynamic=dynamic, fullgraph=True)(mine, w)
    torch.testing.assert_close((found, mine), (program(theirs, w), theirs))


def test_backward_through_what_follows():
    def program(x, w):
        with torch.no_grad():
            y = x.clone()
            transformer_ops.rms_norm(x, w, out=y)
        return (transformer_ops.swiglu(x, y) * w).sum()

    torch._dynamo.reset()
    x, w = torch.randn(4, 8, dtype=torch.float64, requires_grad=True), torch.rand(8, dtype=torch.float64)
    found = torch.autograd.grad(torch.compile(program, fullgraph=True)(x, w), x)
    torch.testing.assert_close(found, torch.autograd.grad(program(x, w), x))


@pytest.mark.parametrize("program", [into_a_copy, caches_of_their_keys, views_of_copies_of_parts])
def test_exported(program, tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x, w):
            return program(x, w)

    x, w = torch.randn(4, 8, dtype=torch.float64), torch.rand(8, dtype=torch.float64)
    exported = torch.export.export(Model(), (x, w))
    for each in (exported, exported.run_decompositions()):
        torch.testing.assert_close(each.module()(x, w), program(x, w))
    package = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
    torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x, w), program(x, w))


def test_nothing_is_copied_where_nothing_is_shared():
    def step(x, key_cache, value_cache, slots):
        keys, values = x.unflatten(1, (2, 2, 4)).unbind(1)
        transformer_ops.reshape_and_cache(keys, values, key_cache, value_cache, slots)

    torch._dynamo.reset()
    caches = [torch.zeros(3, 4, 2, 4) for _ in range(2)]
    arguments = torch.randn(4, 16), *caches, torch.tensor([3, 9, -1, 0])
    _, code = run_and_get_code(torch.compile(step, fullgraph=True), *arguments)
    assert "empty_strided_cpu((" not in code[0]
    assert "cpp_fused" not in code[0]
