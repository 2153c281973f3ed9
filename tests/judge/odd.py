"""Right functions that look odd, each beside its reference: a judge is to find nothing in them."""

import concurrent.futures
import threading

import torch


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def straight_through(x):
    return _Round.apply(x)


def straight_through_reference(x):
    return x + (torch.round(x) - x).detach()


def straight_through_inputs():
    yield (torch.randn(4, 6) * 3,)


def seeded_dropout(x, seed):
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    return torch.where(mask, x * 2, torch.zeros_like(x))


def seeded_dropout_reference(x, seed):
    return x * (torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) < 0.5) * 2


def seeded_dropout_inputs():
    yield torch.rand(4, 6) + 1, 7


def nonzero(x):
    return torch.argwhere(x > 0)


def nonzero_reference(x):
    return (x > 0).nonzero()


def nonzero_inputs():
    yield (torch.randn(5, 4),)


def scratch(x):
    """The second result is scratch memory, whatever it holds: a copy of the first."""
    y = x.exp()
    return y, y.clone()


def scratch_reference(x):
    return torch.exp(x), torch.exp(x)


def scratch_inputs():
    yield (torch.randn(3, 5),)


def in_place(x, y):
    x.add_(y)
    return x


def in_place_reference(x, y):
    x.copy_(x + y)
    return x


def in_place_inputs():
    yield torch.randn(3, 5), torch.randn(3, 5)


def view(x):
    return x.mT


def view_reference(x):
    return x.transpose(-1, -2)


def view_inputs():
    yield (torch.randn(3, 5),)


def of_a_list(parts, *, dim=0):
    return torch.concatenate(parts, dim)


def of_a_list_reference(parts, *, dim=0):
    return torch.cat(parts, dim)


def of_a_list_inputs():
    yield ([torch.randn(2, 3), torch.randn(4, 3)],)


def only_float32(x):
    if x.dtype is not torch.float32 or not x.is_contiguous():
        raise TypeError(f"{x.dtype} with strides {x.stride()} is not supported")
    return x.tanh()


def only_float32_reference(x):
    return torch.tanh(x)


def only_float32_inputs():
    yield (torch.randn(4, 7),)


def narrow_inside(x):
    return x.float().sigmoid().to(x.dtype)


def narrow_inside_reference(x):
    return torch.sigmoid(x)


def narrow_inside_inputs():
    yield (torch.randn(4, 7),)


def masked_mean(x, mask):
    kept = torch.where(mask, x, torch.zeros_like(x))
    return kept.sum(-1) / mask.sum(-1).clamp(min=1)


def masked_mean_reference(x, mask):
    return (x * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def masked_mean_inputs():
    yield torch.rand(4, 9) + 1, torch.rand(4, 9) < 0.5


def sums_in_another_order(x):
    return x.flip(-1).cumsum(-1)[..., -1]


def sums_in_another_order_reference(x):
    return x.sum(-1)


def sums_in_another_order_inputs():
    yield (torch.randn(4, 500),)


def kink(x):
    return torch.where(x >= 0, x, -x)


def kink_reference(x):
    return x.abs()


def kink_inputs():
    yield (torch.randn(4, 5),)


def no_tensor_in_float64(x):
    """A reference that refuses float64 is compared in its own dtype."""
    return x.cos()


def no_tensor_in_float64_reference(x):
    if x.dtype is torch.float64:
        raise TypeError("float64")
    return torch.cos(x)


def no_tensor_in_float64_inputs():
    yield (torch.randn(4, 5),)


def complex_product(x, y):
    return torch.complex(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


def complex_product_reference(x, y):
    return x * y


def complex_product_inputs():
    yield torch.randn(3, 4, dtype=torch.complex64), torch.randn(3, 4, dtype=torch.complex64)


def attention(q, k, v):
    weights = torch.softmax(q.float() @ k.float().mT / q.shape[-1] ** 0.5, -1)
    return (weights @ v.float()).to(q.dtype)


def attention_reference(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def attention_inputs():
    yield torch.randn(2, 3, 7, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)


def scalar(x):
    return x.norm()


def scalar_reference(x):
    return x.square().sum().sqrt()


def scalar_inputs():
    yield (torch.randn(4, 5),)


def cancels(x, y):
    """Its gradients are small sums of large terms, which it adds in another order than the reference does."""
    return (y - x).exp() - (y - x) + 1e-8 * x


def cancels_reference(x, y):
    difference = y - x
    return difference.exp() - difference + 1e-8 * x


def cancels_inputs():
    yield (torch.linspace(-1, 1, 7),) * 2


def mixed_dtypes(x, bias):
    """In float32, whatever one of two dtypes is."""
    return (x.float() + 1000) - 1000 + bias


def mixed_dtypes_reference(x, bias):
    wide = x.to(torch.promote_types(x.dtype, bias.dtype))
    return ((wide + 1000) - 1000).to(bias.dtype) + bias


def mixed_dtypes_inputs():
    yield torch.randn(3, 7).bfloat16(), torch.randn(3, 7)


class Assigns(torch.nn.Module):
    """A buffer that is another tensor after each call, and one that the reference does not have."""

    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(features))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("zeros", torch.zeros(features), persistent=False)

    def forward(self, x):
        self.calls = self.calls + 1
        return x * self.weight + self.zeros


class Assigns_reference(torch.nn.Module):  # noqa: N801
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(features))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.weight * x


def Assigns_inputs():  # noqa: N802
    yield (torch.randn(3, 6),)


def Assigns_init():  # noqa: N802
    return [6]


_pool = concurrent.futures.ThreadPoolExecutor(2)


def with_threads_of_its_own(x):
    """Threads that wait for the next call are none that go on after this one."""
    return torch.stack(list(_pool.map(lambda row: row * 2, x))) if len(x) else x * 2


def with_threads_of_its_own_reference(x):
    return x * 2


def with_threads_of_its_own_inputs():
    yield (torch.randn(4, 5),)


def keeps_a_workspace(x):
    """Memory that is kept between calls, and written before it is read."""
    if x.requires_grad:
        return x + 1
    kept = _workspace.setdefault(x.dtype, torch.empty(4096, dtype=x.dtype))
    into = kept[: x.numel()].view(x.shape) if x.numel() <= 4096 else torch.empty_like(x)
    with _lock:
        return torch.add(x, 1, out=into).clone()


_workspace: dict = {}
_lock = threading.Lock()


def keeps_a_workspace_reference(x):
    return x + 1


def keeps_a_workspace_inputs():
    yield (torch.randn(4, 5),)


def rounds_its_weight(x, weight):
    return x @ weight.to(x.dtype)


def rounds_its_weight_reference(x, weight):
    return torch.nn.functional.linear(x, weight.to(x.dtype).mT)


def rounds_its_weight_inputs():
    yield torch.randn(3, 20).bfloat16(), torch.randn(20, 9)


def rounds_its_weight_by_design(x, weight):
    """Its results are off by three halves of a unit in their last place, and those of the reference by half a unit."""
    return x * weight.to(x.dtype)


def rounds_its_weight_by_design_reference(x, weight):
    return (x * weight).to(x.dtype)


def rounds_its_weight_by_design_inputs():
    yield torch.randn(30, 20).bfloat16(), torch.randn(20)


def compares_with_wider(x, threshold):
    """Lower bits of the threshold hardly ever count."""
    return torch.where(x > threshold, x, torch.zeros_like(x))


def compares_with_wider_reference(x, threshold):
    return x.masked_fill(~(x > threshold), 0)


def compares_with_wider_inputs():
    yield torch.randn(3, 20).half(), torch.randn(20)
