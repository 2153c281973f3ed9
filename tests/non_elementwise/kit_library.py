"""What the conformance kit wants of an operator library, around operators that are declared in Python.

Right ones, and some that are wrong: one claims too much, one rounds, the kernels of two end the process, and two read
out of the bounds of their argument.
"""

import ctypes
from types import SimpleNamespace

import torch
from opwheel.dispatch import Operator, Rows, overloads_of, register_python
from opwheel.registry import BackendStatus, State
from opwheel_tools import OpInfo, Sample
from opwheel_tools.opinfo.lookup import register_op_infos

NAMESPACE = "waves_kit"


def rows(device, dtype, requires_grad):
    yield Sample(torch.randn(3, 4, device=device, dtype=dtype, requires_grad=requires_grad))


def repeated_row(device, dtype, requires_grad):
    yield Sample(torch.randn(1, 4, device=device, dtype=dtype, requires_grad=requires_grad).expand(3, 4))


def indices(device, dtype, requires_grad):
    table = torch.randn(4, 3, device=device, dtype=dtype, requires_grad=requires_grad)
    yield Sample(table, torch.tensor([3, 0], device=device))


def sizes(x):
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(),))


KERNELS = {
    "right(Tensor x) -> Tensor": lambda x: torch.softmax(x, -1),
    "overclaimed(Tensor x) -> Tensor": lambda x: torch.softmax(x, 0),
    "rounded(Tensor x) -> Tensor": lambda x: x.sin() if x.itemsize > 2 else x.sin().round(),
    "crashing(Tensor x) -> Tensor": lambda x: ctypes.string_at(0) and x,
    "crash_in_half(Tensor x) -> Tensor": lambda x: ctypes.string_at(0) and x if x.dtype is torch.half else x.sin(),
    "reads_in_front(Tensor x) -> Tensor": lambda x: ctypes.string_at(x.data_ptr() - 1, 1) and x.sin(),
    "reads_behind(Tensor x) -> Tensor": lambda x: ctypes.string_at(x.data_ptr() + x.nbytes, 1) and x.sin(),
    "unsampled(Tensor x) -> Tensor": torch.sin,
    "looked_up(Tensor table, Tensor index) -> Tensor": lambda table, index: table[index],
    "sorted_out(Tensor x) -> Tensor": lambda x: x[x > 0],
}
OPERATORS = (
    Operator("right", reference=lambda x: torch.softmax(x, -1), rule=Rows(x=1)),
    Operator("overclaimed", reference=lambda x: torch.softmax(x, 0), rule=Rows(x=1)),
    Operator("rounded", reference=torch.sin),
    Operator("crashing", reference=torch.sin),
    Operator("crash_in_half", reference=torch.sin),
    Operator("reads_in_front", reference=torch.sin),
    Operator("reads_behind", reference=torch.sin),
    Operator("unsampled", reference=torch.sin),
    Operator("looked_up", reference=lambda table, index: table[index]),
    Operator("sorted_out", reference=lambda x: x[x > 0], derivatives=None, fake=sizes),
)
OP_INFOS = {
    **dict.fromkeys(("right", "overclaimed", "rounded", "crashing", "crash_in_half"), OpInfo(samples=rows)),
    "reads_in_front": OpInfo(samples=rows),
    "reads_behind": OpInfo(samples=repeated_row),
    "looked_up": OpInfo(samples=indices, index_arguments=("index",)),
    "sorted_out": OpInfo(samples=rows),
}
register_python(NAMESPACE, KERNELS, OPERATORS)
register_op_infos(NAMESPACE, OP_INFOS)
_by_hand = torch.library.Library(NAMESPACE, "FRAGMENT")
_by_hand.define("undeclared(Tensor x) -> Tensor")

overloads = overloads_of(_by_hand)
_claims = {"operators": tuple(overloads), "by_reference": ("right",)}
_status = BackendStatus("cpu", State.LOADED, device_type="cpu", dispatch_key="CPU", **_claims)
library = SimpleNamespace(
    package=__name__,
    namespace=NAMESPACE,
    prefix="WAVES_KIT",
    overloads=overloads,
    backends=lambda: {"cpu": _status},
)
