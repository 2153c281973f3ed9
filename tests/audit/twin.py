"""A library of right operators, in Python alone. ``planted`` changes one line of it for each defect."""

import ctypes  # noqa: F401  # for defects, as the next line
import os  # noqa: F401
import time

import torch

NAMESPACE = "planted"

library = torch.library.Library(NAMESPACE, "DEF")
ops = getattr(torch.ops, NAMESPACE)


def implement(name, kernel):
    """Register a kernel that autograd does not look into, as none in C++ is looked into."""

    def below_autograd(*args):
        with torch._C._AutoDispatchBelowAutograd():
            return kernel(*args)

    library.impl(name, below_autograd, "CPU")


# --- square_scale: x * x * weight, with derivatives by hand ---

library.define("square_scale(Tensor x, Tensor weight) -> Tensor")
implement("square_scale", lambda x, weight: x * x * weight)
torch.library.register_fake(f"{NAMESPACE}::square_scale", lambda x, weight: x * weight, lib=library)


class SquareScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)
        with torch._C._AutoDispatchBelowAutograd():
            return ops.square_scale(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_x = 2 * x * weight * grad
        grad_weight = x * x * grad
        return grad_x, grad_weight.sum_to_size(weight.shape)

    @staticmethod
    def jvp(ctx, dx, dweight):
        x, weight = ctx.saved_tensors
        return 2 * x * weight * dx + x * x * dweight


def differentiate_square_scale(x, weight):
    if torch._C._are_functorch_transforms_active():
        return x * x * weight
    return SquareScale.apply(x, weight)


library.impl("square_scale", differentiate_square_scale, "Autograd")


# --- double: what a kernel that reads memory one after the other does ---

library.define("double(Tensor x) -> Tensor")


def double(x):
    flat = x.contiguous().view(-1)
    result = torch.empty_like(flat)
    for i in range(flat.numel()):
        result[i] = flat[i] * 2
    return result.view(x.shape)


implement("double", double)
torch.library.register_fake(f"{NAMESPACE}::double", lambda x: x.new_empty(x.shape), lib=library)


# --- center: subtracts the mean of each row, in a copy ---

library.define("center(Tensor x) -> Tensor")


def center(x):
    result = x.clone(memory_format=torch.contiguous_format)
    for row in result.flatten(0, -2) if x.dim() > 1 else [result]:
        row -= row.mean()
    return result


implement("center", center)
torch.library.register_fake(f"{NAMESPACE}::center", lambda x: x.new_empty(x.shape), lib=library)


# --- swap: the last two dimensions; the result is laid out like the argument ---

library.define("swap(Tensor x) -> Tensor")
implement("swap", lambda x: x.contiguous().clone().mT)
torch.library.register_fake(f"{NAMESPACE}::swap", lambda x: x.new_empty(x.shape).mT, lib=library)


# --- positive: how many elements of each row are positive ---

library.define("positive(Tensor x) -> Tensor")
implement("positive", lambda x: (x > 0).sum(-1))
torch.library.register_fake(
    f"{NAMESPACE}::positive",
    lambda x: x.new_empty(x.shape[:-1], dtype=torch.int64),
    lib=library,
)


# --- add_into: writes to its first argument ---

library.define("add_into(Tensor(a!) out, Tensor x) -> ()")


def add_into(out, x):
    out.copy_(out + x)


implement("add_into", add_into)
torch.library.register_fake(f"{NAMESPACE}::add_into", lambda out, x: None, lib=library)


# --- clip: a copy without what is below a limit ---

library.define("clip(Tensor x, float low) -> Tensor")


def clip(x, low):
    return torch.clamp(x, min=low)


implement("clip", clip)
torch.library.register_fake(f"{NAMESPACE}::clip", lambda x, low: torch.empty_like(x), lib=library)


# --- extremes: the smallest and the largest of each row ---

library.define("extremes(Tensor x) -> (Tensor, Tensor)")


def extremes(x):
    both = torch.stack([x.amin(-1), x.amax(-1)])
    return both[0].clone(), both[1].clone()


implement("extremes", extremes)
torch.library.register_fake(
    f"{NAMESPACE}::extremes", lambda x: (x.new_empty(x.shape[:-1]), x.new_empty(x.shape[:-1])), lib=library
)


# --- pad: a column more, of zeros ---

library.define("pad(Tensor x) -> Tensor")


def pad(x):
    result = x.new_empty(*x.shape[:-1], x.shape[-1] + 1)
    result[..., -1] = 0
    result[..., :-1] = x
    return result


implement("pad", pad)
torch.library.register_fake(f"{NAMESPACE}::pad", lambda x: x.new_empty(*x.shape[:-1], x.shape[-1] + 1), lib=library)


# --- reverse: with memory of its own for every call ---

library.define("reverse(Tensor x) -> Tensor")
calls = []


def reverse(x):
    scratch = {}
    scratch["x"] = x.flip(-1)
    time.sleep(0.002)
    return scratch["x"].clone()


implement("reverse", reverse)
torch.library.register_fake(f"{NAMESPACE}::reverse", lambda x: torch.empty_like(x), lib=library)


# --- dot: of two vectors, with a rule for vmap ---

library.define("dot(Tensor x, Tensor y) -> Tensor")
implement("dot", lambda x, y: (x * y).sum(-1))
torch.library.register_fake(f"{NAMESPACE}::dot", lambda x, y: (x * y).sum(-1), lib=library)


def dot_of_batches(info, in_dims, x, y):
    x = x.expand(info.batch_size, *x.shape) if in_dims[0] is None else x.movedim(in_dims[0], 0)
    y = y.expand(info.batch_size, *y.shape) if in_dims[1] is None else y.movedim(in_dims[1], 0)
    while x.dim() < y.dim():
        x = x.unsqueeze(1)
    while y.dim() < x.dim():
        y = y.unsqueeze(1)
    return ops.dot(x, y), 0


torch.library.register_vmap(f"{NAMESPACE}::dot", dot_of_batches, lib=library)


# --- mix: x * t + y, in the lower precision under autocast ---

library.define("mix(Tensor x, Tensor y, float t) -> Tensor")
implement("mix", lambda x, y, t: x * t + y)
torch.library.register_fake(f"{NAMESPACE}::mix", lambda x, y, t: x * t + y, lib=library)


def mix_lower(x, y, t):
    lower = torch.get_autocast_dtype("cpu")
    x = x.to(lower)
    y = y.to(lower)
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
        return ops.mix(x, y, t)


library.impl("mix", mix_lower, "AutocastCPU")


# --- negate: what a native kernel may do to its process ---

library.define("negate(Tensor(a!) x) -> ()")


def negate(x):
    x.neg_()


implement("negate", negate)
torch.library.register_fake(f"{NAMESPACE}::negate", lambda x: None, lib=library)


# --- take: rows by their numbers ---

library.define("take(Tensor x, Tensor index) -> Tensor")


def take(x, index):
    return x[index]


implement("take", take)
torch.library.register_fake(f"{NAMESPACE}::take", lambda x, index: x.new_empty(len(index), *x.shape[1:]), lib=library)


# --- soften: half of it; it is called with bfloat16 ---

library.define("soften(Tensor x) -> Tensor")


def soften(x):
    return x * 0.5


implement("soften", soften)
torch.library.register_fake(f"{NAMESPACE}::soften", lambda x: torch.empty_like(x), lib=library)


# --- positives: the positive elements; how many there are depends on values ---

library.define("positives(Tensor x) -> Tensor")
implement("positives", lambda x: x[x > 0])
torch.library.register_fake(
    f"{NAMESPACE}::positives", lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()), lib=library
)


# --- pack: in eight bits ---

library.define("pack(Tensor x) -> Tensor")


def pack(x):
    return x.to(torch.float8_e4m3fn)


implement("pack", pack)
torch.library.register_fake(f"{NAMESPACE}::pack", lambda x: torch.empty_like(x, dtype=torch.float8_e4m3fn), lib=library)
