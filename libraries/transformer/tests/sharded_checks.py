"""Run by torchrun in every process: norms and losses over a sharded dimension, attention by heads, against one process.

``sharded_checks.py MESH``, such as ``2x2``.
"""

import sys
from functools import partial

import pytest
import torch
import transformer_ops
from opwheel.memory.usage import peak
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from libraries.transformer.tests.recording import Operators
from tests.torchrun import leave

ROWS, CLASSES, WIDTH = 6, 13, 5
REDUCES = torch.ops.c10d_functional.all_reduce
RTOL = {torch.float64: 1e-9, torch.float32: 1e-3}


def made(dtype, *shape):
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def norms(dtype):
    """A function, its tensors, by which dimension of them it is sharded, and how often it exchanges numbers."""
    x, residual = made(dtype, 2, ROWS, 10), made(dtype, 2, ROWS, 10)
    weight, bias = made(dtype, 10), made(dtype, 10)
    yield transformer_ops.rms_norm, (x, weight), (-1, 0), 1
    yield partial(transformer_ops.rms_norm, offset=1.0, casting_mode="gemma"), (x, weight), (-1, None), 1
    yield transformer_ops.rms_norm, (x,), (-1,), 1
    yield transformer_ops.fused_add_rms_norm, (x, residual, weight), (-1, -1, 0), 1
    yield transformer_ops.layer_norm, (3 + x, weight, bias), (-1, 0, 0), 2
    yield transformer_ops.layer_norm, (x,), (-1,), 2


OPTIONS = (
    {},
    {"reduction": "sum", "label_smoothing": 0.1, "lse_square_scale": 1e-2},
    {"reduction": "mean", "label_smoothing": 0.1, "softcap": 3.0},
    {"reduction": "none", "lse_square_scale": 1e-2},
)


def losses(dtype):
    target = torch.tensor([1, 0, -100, 12, 2, 7])
    weights = torch.rand(CLASSES, dtype=dtype), torch.rand(ROWS, dtype=dtype)
    for options in OPTIONS:

        def of_logits(x, target, weight=None, token_weight=None, options=options):
            return transformer_ops.cross_entropy(x, target, weight, token_weight=token_weight, **options)

        def of_weight(x, weight, target, bias=None, class_weight=None, token_weight=None, options=options):
            weights = {"class_weight": class_weight, "token_weight": token_weight}
            return transformer_ops.fused_linear_cross_entropy(x, weight, target, bias, **weights, **options)

        logits = made(dtype, ROWS, CLASSES)
        yield of_logits, (logits, target), (1, None), 2
        yield of_logits, (logits, target, *weights), (1, None, None, None), 2
        x, weight, bias = made(dtype, ROWS, WIDTH), made(dtype, CLASSES, WIDTH), made(dtype, CLASSES)
        yield of_weight, (x, weight, target), (None, 0, None), 2
        yield of_weight, (x, weight, target, bias, *weights), (None, 0, None, 0, None, None), 2


def on(mesh, tensor, dim, others=()):
    """A leaf on the mesh, sharded along its last dimension, and as ``others`` say along those before."""
    placement = Replicate() if dim is None else Shard(dim % tensor.dim())
    placements = [*others, placement][-mesh.ndim :]
    placements = [Replicate()] * (mesh.ndim - len(placements)) + placements
    return distribute_tensor(tensor, mesh, placements).requires_grad_(needs_gradient(tensor, dim))


def needs_gradient(tensor, dim):
    """Weights of classes and tokens are constants: their gradients are PyTorch's, from all logits."""
    return tensor.is_floating_point() and (dim is not None or tensor.dim() > 1)


def gradients(results, leaves):
    factors = [torch.linspace(0.5, 1.5, one.numel(), dtype=one.dtype).view(one.shape) for one in results]
    total = sum((whole(one) * factor).sum() for one, factor in zip(results, factors, strict=True))
    return torch.autograd.grad(total, leaves)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def check(mesh, dtype, call, tensors, dims, exchanges, others=()):
    plain = [one.clone().requires_grad_(needs_gradient(one, dim)) for one, dim in zip(tensors, dims, strict=True)]
    expected = as_tuple(call(*plain))
    wanted = gradients(expected, [one for one in plain if one.requires_grad])
    given = [on(mesh, one, dim, others if one.dim() == 3 else ()) for one, dim in zip(tensors, dims, strict=True)]
    with CommDebugMode() as communication:
        results = as_tuple(call(*given))
    counts = communication.get_comm_counts()
    assert counts.get(REDUCES, 0) == communication.get_total_counts(), f"{call}: {counts}"
    assert counts[REDUCES] == exchanges, f"{call}: {counts}, expected {exchanges}"
    got = gradients(results, [one for one in given if one.requires_grad])
    for result, one in zip((*results, *got), (*expected, *wanted), strict=True):
        torch.testing.assert_close(whole(result), one, rtol=RTOL[dtype], atol=RTOL[dtype] / 10)


def check_memory(mesh):
    """No process has more than 1.2 of its share of the logits beside them, gradients included."""
    rows, classes = 1024, 16_000
    target = on(mesh, torch.randint(classes, (rows,)), None)

    def by_logits(x):
        loss = transformer_ops.cross_entropy(x, target)
        return torch.autograd.grad(loss.full_tensor(), x)

    def by_weight(x, weight):
        loss = transformer_ops.fused_linear_cross_entropy(x, weight, target)
        return torch.autograd.grad(loss.full_tensor(), (x, weight))

    logits = on(mesh, torch.randn(rows, classes), 1)
    x, weight = on(mesh, torch.randn(rows, 8), None), on(mesh, torch.randn(classes, 8), 0)
    for name, step in {"logits": partial(by_logits, logits), "weight": partial(by_weight, x, weight)}.items():
        step()
        peaks = [peak(step) for _ in range(3)]  # an allocator may come back to pages that it had given back
        share = rows * classes * 4 / mesh.size()
        assert None in peaks or min(peaks) < 1.2 * share, f"by {name}: {peaks} bytes, of {share} bytes of logits"


def check_certain_rows(mesh):
    """The other classes' weights, next to 1, are all that the loss is made of: wherever the largest logit is."""
    for distance in (1.0, 10.0, 30.0):
        x = torch.full((CLASSES, CLASSES), -distance).fill_diagonal_(0)
        target = torch.arange(CLASSES)
        loss = transformer_ops.cross_entropy(on(mesh, x, 1), target, reduction="none")
        want = torch.log1p((CLASSES - 1) * torch.tensor(-distance, dtype=torch.float64).exp())
        torch.testing.assert_close(whole(loss).double(), want.expand(CLASSES), rtol=1e-6, atol=0)
        twice = torch.cat((x, x), 1)  # two classes that are as likely
        loss = transformer_ops.cross_entropy(on(mesh, twice, 1), target, reduction="none")
        want = torch.log(2 + (2 * CLASSES - 2) * torch.tensor(-distance, dtype=torch.float64).exp())
        torch.testing.assert_close(whole(loss).double(), want.expand(CLASSES), rtol=1e-6, atol=0)


def check_compiled(mesh):
    """In one graph, which has the exchanges in it."""
    x, weight, classes = made(torch.float64, ROWS, 10), made(torch.float64, 10), made(torch.float64, CLASSES, 10)
    target = torch.tensor([1, 0, -100, 12, 2, 7])

    def loss_of(x, weight, classes, target):
        y = transformer_ops.rms_norm(x, weight)
        return transformer_ops.fused_linear_cross_entropy(y, classes, target)

    compiled = torch.compile(loss_of, backend="aot_eager", fullgraph=True)
    given = [on(mesh, one, dim) for one, dim in ((x, -1), (weight, 0), (classes, 0), (target, None))]
    loss, expected = compiled(*given), loss_of(*given)
    torch.testing.assert_close(whole(loss), whole(expected))
    for got, one in zip(gradients([loss], given[:3]), gradients([expected], given[:3]), strict=True):
        torch.testing.assert_close(whole(got), whole(one))


def check_heads(mesh):
    """Of heads that are shared out nothing is gathered, whichever keys the queries see."""
    tensors = [made(torch.float64, 2, count, heads, 6) for count, heads in ((3, 8), (5, 4), (5, 4))]
    positions, filled = torch.tensor([[2, 3, 4], [0, 2, 1]]), torch.arange(5).lt(4).expand(2, 1, 1, 5).contiguous()
    every = {"is_causal": True, "position_ids": positions, "attn_mask": filled}
    for names in ((), ("is_causal",), ("is_causal", "position_ids"), ("attn_mask",), tuple(every)):
        options = {name: every[name] for name in names}
        plain = [one.clone().requires_grad_() for one in tensors]
        expected = transformer_ops.attention(*plain, **options)
        given = [on(mesh, one, 2) for one in tensors]
        shared = {name: on(mesh, one, None) if isinstance(one, torch.Tensor) else one for name, one in options.items()}
        with CommDebugMode() as communication:
            result = transformer_ops.attention(*given, **shared)
            got = torch.autograd.grad(result, given, result.detach())
        assert communication.get_total_counts() == 0, f"{names}: {communication.get_comm_counts()}"
        wanted = torch.autograd.grad(expected, plain, expected.detach())
        for one, other in zip((result, *got), (expected, *wanted), strict=True):
            torch.testing.assert_close(whole(one), other)


def check_checkpointed(mesh, *, compiled):
    """What attention returns is kept, all else is computed anew."""
    x, weight = on(mesh, made(torch.float64, 2, 6, 4, 8), 2), on(mesh, made(torch.float64, 8), None).requires_grad_()

    def layer(x, weight):
        y = transformer_ops.rms_norm(x, weight)
        return transformer_ops.swiglu(transformer_ops.attention(y, y, y, is_causal=True), y)

    def kept(x, weight):
        context = partial(create_selective_checkpoint_contexts, [torch.ops.transformer_ops.attention_training.default])
        return checkpoint(layer, x, weight, use_reentrant=False, context_fn=context)

    expected = gradients([layer(x, weight)], [x, weight])
    with Operators() as recorded:
        found = gradients([kept(x, weight)], [x, weight])
    assert (recorded.counts["attention_training"], recorded.counts["rms_norm"]) == (1, 2), recorded.counts
    runs = [found]
    if compiled:
        runs.append(gradients([torch.compile(kept, backend="aot_eager", fullgraph=True)(x, weight)], [x, weight]))
    for run in runs:
        for one, other in zip(run, expected, strict=True):
            torch.testing.assert_close(whole(one), whole(other))


def check_refusals(mesh):
    x = on(mesh, made(torch.float32, 4, 10), -1).detach()
    with pytest.raises(RuntimeError, match=r"'residual' is written to and must be whole"):
        transformer_ops.fused_add_rms_norm_(x, x.clone())
    with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
        transformer_ops.rms_norm(x, torch.ones(10))
    with pytest.raises(RuntimeError, match=r"float32 and torch\.float16, expected one dtype"):
        transformer_ops.rms_norm(x, on(mesh, torch.ones(10).half(), 0))
    with pytest.raises(RuntimeError, match="argument 'target' has shape"):
        transformer_ops.cross_entropy(x, torch.tensor([0, 1, 2]))
    with pytest.raises((RuntimeError, IndexError)):
        transformer_ops.cross_entropy(x, torch.tensor([0, 1, 10, 2]))
    labels = torch.tensor([0, 1, 9, 2])  # of which every process has the same
    loss = transformer_ops.cross_entropy(x, labels)
    torch.testing.assert_close(whole(loss), transformer_ops.cross_entropy(whole(x), labels))


def main():
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", tuple(map(int, sys.argv[1].split("x"))))
    for dtype in (torch.float64, torch.float32):
        for case in (*norms(dtype), *losses(dtype)):
            check(mesh, dtype, *case)
        if mesh.ndim > 1:
            for case in norms(dtype):
                check(mesh, dtype, *case, others=[Shard(1)])
    check_certain_rows(mesh)
    if mesh.ndim == 1:
        check_memory(mesh)
    check_heads(mesh)
    check_checkpointed(mesh, compiled=mesh.size() > 2)
    if mesh.size() > 2:
        check_compiled(mesh)
    check_refusals(mesh)
    leave("all reductions right")


if __name__ == "__main__":
    main()
