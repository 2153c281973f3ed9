"""rope of heads of few elements, which are turned side by side, and of longer ones."""

import pytest
import torch
import transformer_ops

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [2, 4, 6, 8, 10, 32])
@pytest.mark.parametrize("unsqueeze_dim", [1, 2])
@pytest.mark.parametrize("interleaved", [False, True])
def test_heads_of_rope(unsqueeze_dim, length, interleaved, dtype):
    """With positions that are counted, given, or shared by heads."""
    torch.manual_seed(0)
    heads, positions = (3, 70) if unsqueeze_dim == 1 else (70, 3)
    shape = (2, heads, positions, length) if unsqueeze_dim == 1 else (2, positions, heads, length)
    q, k = (torch.randn(shape).to(dtype) for _ in range(2))
    angles = torch.randn(positions, length // 2)
    cos, sin = (torch.cat((half, half), -1).to(dtype) for half in (angles.cos(), angles.sin()))
    ids = torch.randint(positions, (2, positions))

    def turned(x, cos, sin):
        u, v = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
        c, s = (one[..., : length // 2].unsqueeze(unsqueeze_dim).double() for one in (cos, sin))
        pair = (u * c - v * s, v * c + u * s)
        return torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)

    options = {"unsqueeze_dim": unsqueeze_dim, "interleaved": interleaved}
    for rows in (None, ids):
        tables = (cos[None], sin[None]) if rows is None else (cos, sin)
        of_positions = tables if rows is None else (cos[rows], sin[rows])
        found = transformer_ops.rope(q, k, *tables, rows, **options)
        bound = 4 * torch.finfo(dtype).eps * (1 + q.double().abs().max())
        for one, given in zip(found, (q, k), strict=True):
            assert (one.double() - turned(given.double(), *of_positions)).abs().max() <= bound
        apart = [x.transpose(0, 3).contiguous().transpose(0, 3) for x in (q, k)]
        for one, other in zip(transformer_ops.rope(*apart, *tables, rows, **options), found, strict=True):
            assert torch.equal(one, other)
        # A position alone has the same bits as among others.
        part = slice(5, 6) if unsqueeze_dim == 1 else slice(1, 2)
        where = (slice(None), slice(None), part) if unsqueeze_dim == 1 else (slice(None), part)
        of_part = (cos[None, part], sin[None, part]) if rows is None else tables
        alone = transformer_ops.rope(q[where], k[where], *of_part, None if rows is None else rows[:, part], **options)
        assert torch.equal(alone[0], found[0][where])


def test_gradients_of_tables_have_the_same_bits_in_every_call():
    """Of rows that many positions share, whose gradients are sums."""
    torch.manual_seed(0)
    q, k, cos, sin = (torch.randn(shape, requires_grad=True) for shape in [(1, 2, 512, 256)] * 2 + [(512, 256)] * 2)
    ids = torch.randint(5, (512,))

    def gradients():
        turned = transformer_ops.rope(q, k, cos, sin, ids)
        return torch.autograd.grad(sum(one.square().sum() for one in turned), (q, k, cos, sin))

    first = gradients()
    for _ in range(10):
        assert all(map(torch.equal, gradients(), first))
