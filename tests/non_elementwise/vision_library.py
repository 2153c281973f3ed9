"""Operators of computer vision: arguments that say where to look, and results whose size depends on values."""

import itertools

import numpy as np
import torch
from opwheel import Autocast, Operator
from opwheel.dispatch import overloads_of, register_python
from opwheel_tools import OpInfo, Sample
from opwheel_tools.opinfo.lookup import register_op_infos

_names = (f"vision_{number}" for number in itertools.count())

# --- pool_boxes: features at a grid of points in each box; boxes are an index of an image and two corners ------------


def pool_boxes_reference(features, boxes, size, scale):
    boxes = boxes.detach()
    image, corners = boxes[:, 0].long(), boxes[:, 1:] * scale
    steps = (torch.arange(size, dtype=boxes.dtype, device=boxes.device) + 0.5) / size
    columns = (corners[:, :1] + steps * (corners[:, 2:3] - corners[:, :1])).clamp(0, features.shape[3] - 1)
    rows = (corners[:, 1:2] + steps * (corners[:, 3:] - corners[:, 1:2])).clamp(0, features.shape[2] - 1)
    found = features[image[:, None, None], :, rows.long()[:, :, None], columns.long()[:, None, :]]
    return found.permute(0, 3, 1, 2).to(features.dtype)


def pool_boxes_kernel(features, boxes, size, scale):
    values, places = features.detach().double().numpy(), boxes.detach().to(boxes.dtype)
    result = np.zeros((len(places), values.shape[1], size, size))
    for box, place in enumerate(places):
        x0, y0, x1, y1 = (place[1:] * scale).unbind()
        for row, column in np.ndindex(size, size):
            steps = ((torch.tensor([row, column], dtype=boxes.dtype) + 0.5) / size).unbind()
            y = int((y0 + steps[0] * (y1 - y0)).clamp(0, values.shape[2] - 1))
            x = int((x0 + steps[1] * (x1 - x0)).clamp(0, values.shape[3] - 1))
            result[box, :, row, column] = values[int(place[0]), :, y, x]
    return torch.from_numpy(result).to(features.dtype)


def pool_boxes_samples(device, dtype, requires_grad):
    features = torch.randn(2, 3, 6, 7, device=device, dtype=dtype, requires_grad=requires_grad)
    boxes = [[0, 0, 0, 12, 10], [1, 2, 4, 9, 11], [1, 0, 0, 1, 1], [0, 5, 3, 20, 20], [1, 3, 3, 4, 8]]
    yield Sample(features, torch.tensor(boxes, device=device, dtype=dtype), 2, 0.5)


# --- suppress: indices of boxes that no better one overlaps ----------------------------------------------------------


def suppress_reference(boxes, scores, threshold):
    kept = []
    for index in scores.argsort(descending=True, stable=True).tolist():
        if all(overlap(boxes[index], boxes[other]) <= threshold for other in kept):
            kept.append(index)
    return torch.tensor(kept, dtype=torch.int64, device=boxes.device)


def overlap(one, other):
    area = lambda box: (box[2] - box[0]).clamp_min(0) * (box[3] - box[1]).clamp_min(0)  # noqa: E731
    common = area(torch.cat([torch.maximum(one[:2], other[:2]), torch.minimum(one[2:], other[2:])]))
    return common / (area(one) + area(other) - common)


def suppress_fake(boxes, scores, threshold):
    return boxes.new_empty((torch.library.get_ctx().new_dynamic_size(),), dtype=torch.int64)


def suppress_samples(device, dtype, requires_grad):
    boxes = [[0, 0, 4, 4], [1, 0, 5, 4], [8, 8, 9, 9], [0, 0, 4, 3]]
    scores = torch.tensor([0.5, 0.75, 0.25, 0.875], device=device, dtype=dtype)
    yield Sample(torch.tensor(boxes, device=device, dtype=dtype), scores, 0.5)


# --- rows_at: rows of a table ----------------------------------------------------------------------------------------


def rows_at(table, index):
    return table[index]


def rows_at_samples(device, dtype, requires_grad):
    table = torch.randn(6, 4, device=device, dtype=dtype, requires_grad=requires_grad)
    yield Sample(table, torch.tensor([5, 0, 3], device=device))


KERNELS = {
    "pool_boxes(Tensor features, Tensor boxes, int size, float scale) -> Tensor": pool_boxes_kernel,
    "suppress(Tensor boxes, Tensor scores, float threshold) -> Tensor": suppress_reference,
    "rows_at(Tensor table, Tensor index) -> Tensor": rows_at,
}
OPERATORS = {
    "pool_boxes": Operator(
        "pool_boxes", reference=pool_boxes_reference, autocast=Autocast("float32", result="features")
    ),
    "suppress": Operator("suppress", reference=suppress_reference, derivatives=None, fake=suppress_fake),
    "rows_at": Operator("rows_at", reference=rows_at, autocast=None),
}
WIDE = (torch.float32, torch.float64)
OP_INFOS = {
    "pool_boxes": OpInfo(samples=pool_boxes_samples, index_arguments=("boxes",)),
    "suppress": OpInfo(samples=suppress_samples, dtypes=WIDE, index_arguments=("boxes",)),
    "rows_at": OpInfo(samples=rows_at_samples, dtypes=WIDE, index_arguments=("index",)),
}


def overload(name, *, kernel=None, info=None, **declared):
    """One of the operators, with another kernel, another declaration or other samples."""
    namespace = next(_names)
    (schema,) = (schema for schema in KERNELS if schema.startswith(f"{name}("))
    register_python(namespace, {schema: kernel or KERNELS[schema]}, [OPERATORS[name]._replace(**declared)])
    register_op_infos(namespace, {name: info or OP_INFOS[name]})
    return overloads_of(torch.library.Library(namespace, "FRAGMENT"))[name]
