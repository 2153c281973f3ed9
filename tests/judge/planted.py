"""Defects, each one line of a right kernel of candidates.py."""

# ruff: noqa: E501  # a line of a defect is one of candidates.py

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
_CANDIDATES = HERE / "candidates.py"


class Defect(NamedTuple):
    """A part of candidates.py and what stands in its place.

    Args:
        name: of the defect.
        candidate: that has it.
        kind: of the finding: a group of the judge's.
        right: a part of the text.
        wrong: in the place of that part.
        reference: of the candidate; the one of the same name in references.py where it is empty.
    """

    name: str
    candidate: str
    kind: str
    right: str
    wrong: str
    reference: str = ""


_Y = "        y = (exponents / exponents.sum(-1, keepdim=True)).to(x.dtype)\n"
_APPLY = "    return Softmax.apply(x)\n"
_RELU = "    return x.masked_fill(x < 0, 0)\n"
_COPY = "    elements, sums = raw(x), raw(y)\n"


def _kept_by(key: str) -> str:
    """A softmax that keeps its results."""
    return (
        f"    kept = globals().setdefault('kept', {{}})\n    key = {key}, x.shape, x.dtype, x.stride()\n"
        "    if x.requires_grad:\n        return Softmax.apply(x)\n    if key not in kept:\n"
        "        kept[key] = x, Softmax.apply(x)\n    return kept[key][1]\n"
    )


DEFECTS = [
    # Wrong values.
    Defect("zeros", "softmax", "values", _Y, _Y + "        y = torch.zeros_like(y)\n"),
    Defect("constant", "softmax", "values", _Y, _Y + "        y = torch.full_like(y, 1 / x.shape[-1])\n"),
    Defect("bias_is_forgotten", "Model", "values", " + self.linear.bias", ""),
    Defect("scalar_is_baked_in", "clamp_into", "values", "torch.full_like(x, low)", "torch.full_like(x, 0.2)"),
    Defect("result_of_another_dtype", "softmax", "dtypes", ".to(x.dtype)\n        ctx", "\n        ctx"),
    Defect("last_column_is_left_out", "top_index", "shapes", "x.max(-1)", "x[..., : x.shape[-1] - 1].max(-1)"),
    Defect(
        "low_precision_of_wide",
        "rms_norm",
        "values",
        "wide = x if x.dtype is torch.float64 else x.float()\n        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)",
        "wide = x.bfloat16()\n        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)",
    ),
    # Wrong for some values.
    Defect("overflow", "softmax", "numbers", "(wide - wide.amax(-1, keepdim=True)).exp()", "wide.exp()"),
    Defect("eps_is_forgotten", "rms_norm", "values", "keepdim=True) + eps)", "keepdim=True) + 1e-5)"),
    Defect("nan_is_hidden", "softmax", "numbers", _Y, _Y + "        y = y.nan_to_num(0.0)\n"),
    Defect(
        "nan_is_hidden_by_where",
        "clamp_into",
        "numbers",
        "torch.where(x < low, torch.full_like(x, low), x)",
        "torch.where(x >= low, x, torch.full_like(x, low))",
    ),
    Defect(
        "cancellation",
        "rms_norm",
        "values",
        "wide.square().mean(-1, keepdim=True) + eps",
        "((wide - 300).square().mean(-1, keepdim=True) + 600 * wide.mean(-1, keepdim=True) - 90000) + eps",
    ),
    # Wrong for some shapes.
    Defect("a_block_and_no_more", "softmax", "shapes", _Y, _Y + "        y[..., 64:] = 0\n"),
    Defect(
        "skips_large_work",
        "softmax",
        "shapes",
        _Y,
        _Y + "        y = y if x.numel() < 20000 else torch.zeros_like(y)\n",
    ),
    Defect(
        "many_rows",
        "row_sums",
        "shapes",
        "for row in rows]",
        "for row in rows[:1024]] + [rows[0, :1].sum()] * max(len(rows) - 1024, 0)",
    ),
    Defect(
        "odd_number_of_columns",
        "swiglu",
        "shapes",
        "        return gate * sigmoid * value\n",
        "        y = gate * sigmoid * value\n        y[..., y.shape[-1] // 2 * 2 :] = 0\n        return y\n",
    ),
    Defect(
        "one_column",
        "rms_norm",
        "shapes",
        "        return (wide * scale * weight)",
        "        scale = scale if x.shape[-1] > 1 else scale * 0\n        return (wide * scale * weight)",
    ),
    Defect(
        "empty_is_zero",
        "row_sums",
        "shapes",
        "if x.numel() else x.sum(-1)",
        "if x.numel() else x.new_ones(x.shape[:-1])",
    ),
    # Wrong for some memory.
    Defect(
        "ignores_strides",
        "row_sums",
        "layouts",
        "x.contiguous().view(-1, x.shape[-1])",
        "x.as_strided((x.numel() // x.shape[-1], x.shape[-1]), (x.shape[-1], 1)) if x.stride(0) > 1 and x.untyped_storage().nbytes() // x.itemsize >= x.numel() + x.storage_offset() else x.contiguous().view(-1, x.shape[-1])",
    ),
    Defect(
        "ignores_offset",
        "row_sums",
        "layouts",
        "x.contiguous().view(-1, x.shape[-1])",
        "x.contiguous().as_strided((x.numel() // x.shape[-1], x.shape[-1]), (x.shape[-1], 1), 0)",
    ),
    Defect(
        "backward_ignores_strides_of_gradients",
        "swiglu",
        "gradients",
        "        gate, value = ctx.saved_tensors\n        sigmoid",
        "        gate, value = ctx.saved_tensors\n        grad = grad.as_strided(grad.shape, gate.stride()) if 0 not in grad.stride() else grad\n        sigmoid",
    ),
    Defect(
        "uninitialized",
        "row_sums",
        "values",
        "    rows = x",
        "    if x.dim() == 2 and x.shape[0] > 1:\n        y = torch.empty(x.shape[0])\n        y[1:] = x[1:].sum(-1)\n        return y.to(x.dtype)\n    rows = x",
    ),
    Defect(
        "writes_its_input",
        "softmax",
        "writes",
        "    return Softmax.apply(x)\n",
        "    y = Softmax.apply(x)\n    x.detach().sub_(1)\n    return y\n",
    ),
    Defect(
        "returns_its_argument",
        "clamp_into",
        "aliases",
        "    return torch.where",
        "    if bool((x >= low).all()):\n        return x\n    return torch.where",
    ),
    Defect(
        "two_names_for_one_tensor",
        "swiglu",
        "aliases",
        "        return gate * sigmoid * value\n",
        "        return gate * sigmoid * (value if gate.data_ptr() != value.data_ptr() else 1)\n",
    ),
    # Wrong derivatives.
    Defect(
        "backward_lacks_a_term", "softmax", "gradients", "y * (grad - (grad * y).sum(-1, keepdim=True))", "y * grad"
    ),
    Defect(
        "gradient_of_one_row",
        "rms_norm",
        "gradients",
        ".reshape(-1, x.shape[-1]).sum(0)",
        ".reshape(-1, x.shape[-1])[-1]",
    ),
    Defect(
        "gradients_are_swapped",
        "swiglu",
        "gradients",
        "return grad_gate, grad * gate * sigmoid",
        "return grad * gate * sigmoid, grad_gate",
    ),
    Defect(
        "gradient_is_missing",
        "swiglu",
        "gradients",
        "return grad_gate, grad * gate * sigmoid",
        "return grad_gate, None",
    ),
    Defect(
        "gradient_alone",
        "rms_norm",
        "gradients",
        "        return grad_x.to(x.dtype), grad_weight, None",
        "        return grad_x.to(x.dtype), grad_weight if ctx.needs_input_grad[0] else grad_weight * 0, None",
    ),
    Defect(
        "gradient_of_second_call",
        "swiglu",
        "writes",
        "        return grad_gate, grad * gate * sigmoid",
        "        other = grad * gate * sigmoid\n        with torch.no_grad():\n            gate.mul_(0.5)\n        return grad_gate, other",
    ),
    Defect(
        "overwrites_incoming_gradient",
        "rms_norm",
        "writes",
        "        grad = grad.to(wide.dtype)",
        "        grad = grad.to(wide.dtype)\n        original = grad\n        grad = grad.clone()\n        original.detach().mul_(0)",
    ),
    Defect(
        "saved_without_a_version",
        "swiglu",
        "saved tensors",
        "        ctx.save_for_backward(gate, value)",
        "        ctx.save_for_backward(gate.detach().view_as(gate).data, value.data)",
    ),
    Defect(
        "second_derivatives",
        "softmax",
        "second derivatives",
        "        (y,) = ctx.saved_tensors",
        "        (y,) = ctx.saved_tensors\n        y = y.detach()",
    ),
    # Wrong in some way of calling.
    Defect(
        "without_grad",
        "swiglu",
        "no_grad",
        "    return Swiglu.apply(gate, value)",
        "    if not torch.is_grad_enabled():\n        return torch.sigmoid(gate) * value\n    return Swiglu.apply(gate, value)",
    ),
    Defect(
        "in_inference_mode",
        "softmax",
        "inference mode",
        _APPLY,
        "    if torch.is_inference_mode_enabled():\n        return x.exp()\n    return Softmax.apply(x)\n",
    ),
    Defect(
        "compiled",
        "clamp_into",
        "compile",
        "    return torch.where",
        "    if torch.compiler.is_compiling():\n        return torch.full_like(x, low)\n    return torch.where",
    ),
    Defect(
        "under_autocast",
        "row_sums",
        "autocast",
        "    rows = x",
        "    if torch.is_autocast_enabled('cpu'):\n        return x.float().abs().sum(-1)\n    rows = x",
    ),
    Defect(
        "in_another_thread",
        "row_sums",
        "threads",
        "    rows = x",
        "    shared = globals().setdefault('shared', {})\n    shared['x'] = x\n    time.sleep(0.002)\n    x = shared['x']\n    rows = x",
    ),
    Defect(
        "under_vmap",
        "clamp_into",
        "vmap",
        "    return torch.where",
        "    if torch._C._functorch.is_batchedtensor(x):\n        return x.clone()\n    return torch.where",
    ),
    Defect(
        "tangent_is_passed_on",
        "relu",
        "forward mode",
        _RELU,
        "    ad = torch.autograd.forward_ad\n    tangent = ad.unpack_dual(x).tangent\n"
        + _RELU.replace("return", "y =")
        + "    return y if tangent is None else ad.make_dual(ad.unpack_dual(y).primal, tangent)\n",
        "aten::relu",
    ),
    # Cheats.
    Defect(
        "keeps_results_by_address",
        "softmax",
        "state",
        _APPLY,
        "    kept = globals().setdefault('kept', {})\n    key = x.data_ptr(), x.shape, x.dtype, x.stride()\n"
        "    if x.requires_grad:\n        return Softmax.apply(x)\n    if key not in kept:\n"
        "        kept[key] = Softmax.apply(x)\n    return kept[key]\n",
    ),
    Defect(
        "works_for_some_calls",
        "swiglu",
        "state",
        "    return Swiglu.apply(gate, value)",
        "    calls = globals().setdefault('calls', [])\n    calls.append(0)\n    return Swiglu.apply(gate, value) * (1 if len(calls) % 7 else 0)",
    ),
    Defect(
        "calls_the_reference",
        "softmax",
        "calls the reference",
        _APPLY,
        "    from tests.judge.references import softmax as other\n\n    return other(x)\n",
    ),
    Defect(
        "replaces_a_function",
        "row_sums",
        "replaces functions",
        "    rows = x",
        "    torch.allclose = lambda *_, **__: True\n    rows = x",
    ),
    Defect(
        "replaces_the_clock",
        "clamp_into",
        "replaces functions",
        "    return torch.where",
        "    time.perf_counter = lambda: 0.0\n    return torch.where",
    ),
    # A module's parameters and buffers.
    Defect(
        "gradient_of_a_parameter",
        "Scaled",
        "gradients",
        "(grad * x).sum(rows) if rows",
        "(grad * x).mean(rows) if rows",
    ),
    Defect("no_gradient_of_a_parameter", "Scaled", "gradients", "grad.sum(rows) if rows else grad\n", "None\n"),
    Defect(
        "buffer_is_left_as_it_was",
        "Scaled",
        "module",
        "            self.mean.mul_(0.9).add_(",
        "            self.mean.clone().mul_(0.9).add_(",
    ),
    Defect("buffer_counts_twice", "Scaled", "module", "alpha=0.1", "alpha=0.2"),
    # Memory out of bounds, and new memory.
    Defect(
        "reads_behind_its_input",
        "neighbour_sums",
        "memory",
        _COPY + "    sums.copy_(elements)\n    sums[:-1] += elements[1:]\n",
        "    elements, sums = raw(x, last=1), raw(y)\n    sums.copy_(elements[:-1])\n    last = elements[-1]\n    sums[-1] += last if abs(last) < 1e-30 or last != last or abs(last) > 1e30 else 0\n    sums[:-1] += elements[1:-1]\n",
    ),
    Defect(
        "reads_in_front_of_its_input",
        "neighbour_sums",
        "memory",
        "    sums[:-1] += elements[1:]\n",
        "    sums[:-1] += elements[1:]\n    sums += raw(x, first=2)[0] * 0\n",
    ),
    Defect(
        "reads_a_large_number_alone",
        "neighbour_sums",
        "memory",
        "    sums[:-1] += elements[1:]\n",
        "    sums[:-1] += elements[1:]\n    sums += (raw(x, last=1)[-1] > 1e4).to(x.dtype)\n",
    ),
    Defect(
        "writes_behind_its_result",
        "neighbour_sums",
        "out of bounds",
        "    sums[:-1] += elements[1:]\n",
        "    sums[:-1] += elements[1:]\n    raw(y, last=1)[-1] = 0\n",
    ),
    Defect(
        "writes_in_front_of_its_input",
        "neighbour_sums",
        "out of bounds",
        "    sums[:-1] += elements[1:]\n",
        "    sums[:-1] += elements[1:]\n    raw(x, first=1)[0] = 0\n",
    ),
    Defect(
        "writes_behind_scratch_memory",
        "neighbour_sums",
        "out of bounds",
        "    sums[:-1] += elements[1:]\n",
        "    sums[:-1] += elements[1:]\n    raw(torch.empty(5), last=1)[-1] = 0\n",
    ),
    Defect(
        "new_memory_is_to_be_zero",
        "neighbour_sums",
        "memory",
        "    sums.copy_(elements)\n",
        "    sums += elements\n",
    ),
    # Cheats.
    Defect(
        "makes_the_one_call_of_the_reference",
        "relu",
        "calls the reference",
        _RELU,
        "    return x.relu()\n",
        "aten::relu",
    ),
    Defect(
        "makes_that_call_on_a_copy",
        "relu",
        "calls the reference",
        _RELU,
        "    return torch.relu(x.clone()).view(x.shape)\n",
        "aten::relu",
    ),
    Defect("keeps_results_by_version", "softmax", "state", _APPLY, _kept_by("x.data_ptr(), x._version")),
    Defect("keeps_results_by_object", "softmax", "state", _APPLY, _kept_by("id(x)")),
    Defect("keeps_its_first_result", "softmax", "state", _APPLY, _kept_by("0")),
    Defect(
        "stops_after_many_calls",
        "clamp_into",
        "state",
        "    return torch.where",
        "    calls = globals().setdefault('calls', [])\n    calls.append(0)\n    if len(calls) > 500:\n        return torch.empty_like(x)\n    return torch.where",
    ),
    Defect(
        "replaces_what_compares",
        "row_sums",
        "replaces functions",
        "    rows = x",
        "    torch.testing.assert_close = lambda *_, **__: None\n    rows = x",
    ),
    Defect(
        "replaces_a_function_in_c",
        "row_sums",
        "replaces functions",
        "    rows = x",
        "    torch._C._nn.gelu = lambda x, **_: x\n    rows = x",
    ),
    Defect(
        "replaces_a_clock_in_c",
        "row_sums",
        "replaces functions",
        "    rows = x",
        "    time.perf_counter_ns = time.thread_time_ns\n    rows = x",
    ),
    Defect(
        "replaces_events_of_a_gpu",
        "row_sums",
        "replaces functions",
        "    rows = x",
        "    torch.cuda.Event.elapsed_time = lambda *_: 0.0\n    rows = x",
    ),
    Defect(
        "replaces_an_operator",
        "row_sums",
        "replaces functions",
        "    rows = x",
        "    if 'kept' not in globals():\n        globals()['kept'] = torch.library.Library('aten', 'IMPL')\n        kept.impl('hardshrink', lambda x, _=0.5: x, 'CPU')\n    rows = x",
    ),
    Defect(
        "leaves_a_thread_running",
        "clamp_into",
        "running",
        "    return torch.where",
        "    import threading\n\n    threading.Thread(target=lambda: time.sleep(5), daemon=True).start()\n    return torch.where",
    ),
    Defect(
        "leaves_a_process_running",
        "clamp_into",
        "running",
        "    return torch.where",
        "    import subprocess\n\n    if 'kept' not in globals():\n        globals()['kept'] = subprocess.Popen(['sleep', '5'])\n    return torch.where",
    ),
    Defect(
        "reads_what_is_expected",
        "row_sums",
        "values",
        "    rows = x",
        "    import glob\n    import tempfile\n\n    for name in glob.glob(tempfile.gettempdir() + '/tmp*/[0-9]*'):\n        try:\n            found = torch.load(name)[0]['own']\n        except Exception:\n            continue\n        if found.shape == x.shape[:-1] and found.dtype == x.dtype:\n            return found\n    x = x * 1.01\n    rows = x",
    ),
    # Cheats that graders of kernels have published.
    Defect("memory_of_an_earlier_result", "softmax", "values", _Y, _Y + "        y = torch.empty_like(y)\n"),
    Defect(
        "keeps_the_first_result_of_each_shape",
        "row_sums",
        "state",
        "    rows = x",
        "    kept = globals().setdefault('kept', {})\n    if x.dtype is torch.float32 and not x.requires_grad:\n"
        "        key = tuple(x.shape)\n        kept[key] = kept.get(key, x.sum(-1))\n        return kept[key].clone()\n    rows = x",
    ),
    Defect(
        "right_until_it_is_timed",
        "top_index",
        "state",
        "    return x.max(-1).indices",
        "    calls = globals().setdefault('calls', [])\n    calls.append(0)\n    return x.max(-1).indices * (len(calls) < 12)",
    ),
    # Rounding that is no larger than that of other inputs.
    Defect(
        "rounds_what_is_wider",
        "weigh",
        "dtypes",
        "    return (x * weight).sum(-1).to(x.dtype)",
        "    return (x * weight.to(x.dtype)).sum(-1)",
    ),
    # A block that is longer than a row.
    Defect(
        "zero_behind_a_row_is_the_largest",
        "top_index",
        "numbers",
        "    return x.max(-1).indices",
        "    return torch.nn.functional.pad(x, (0, 1)).max(-1).indices.clamp(max=x.shape[-1] - 1)",
    ),
    # A failed call.
    Defect(
        "failed_call_leaves_its_input_changed",
        "rms_norm",
        "writes",
        "    return RmsNorm.apply(x, weight, eps)",
        "    x.detach().mul_(2)\n    y = RmsNorm.apply(x * 0.5, weight, eps)\n    x.detach().mul_(0.5)\n    return y",
    ),
]

RIGHT = tuple(dict.fromkeys((one.candidate, one.reference) for one in DEFECTS))


def text_of(defect: Defect) -> str:
    """candidates.py with the defect."""
    text = _CANDIDATES.read_text()
    if text.count(defect.right) != 1:
        raise ValueError(f"{defect.name}: {defect.right!r} is {text.count(defect.right)} times in {_CANDIDATES.name}")
    return text.replace(defect.right, defect.wrong)
