"""What cannot be judged is said, with what to write."""

import pytest
from opwheel_tools.judge import UsageError, judge

from .planted import HERE

pytestmark = pytest.mark.usefixtures("in_this_process")
MORE = """
import torch

def random(x):
    return x + torch.rand_like(x)

def no_inputs():
    return []

def one_tensor():
    return torch.ones(3)

def objects():
    yield torch.ones(3), object()
"""


@pytest.mark.parametrize(
    ("candidate", "reference", "inputs", "message"),
    [
        ("nothing", "softmax", "softmax_inputs", "'nothing' names nothing; write module:name"),
        ("missing.py:f", "softmax", "softmax_inputs", "there is no file missing.py"),
        ("missing:f", "softmax", "softmax_inputs", "missing cannot be imported: ModuleNotFoundError"),
        ("candidates:soft", "softmax", "softmax_inputs", "has no 'soft'; it has: "),
        ("candidates:torch.float32", "softmax", "softmax_inputs", "a dtype cannot be called"),
        ("aten::no_such", "softmax", "softmax_inputs", "no operator 'aten::no_such' is registered"),
        ("candidates:softmax", "softmax", "take_rows", "missing 2 required positional"),
        ("candidates:softmax", "more:random", "softmax_inputs", "the reference gives other results"),
        ("candidates:softmax", "softmax", "more:no_inputs", "the inputs are empty; yield a tuple"),
        ("candidates:softmax", "softmax", "more:one_tensor", "the inputs are a Tensor; yield a tuple"),
        ("candidates:softmax", "softmax", "more:objects", "a object cannot be written; give tensors"),
        ("candidates:softmax", "rms_norm", "softmax_inputs", "the reference raises on call 0: TypeError"),
        ("candidates:rms_norm", "softmax", "softmax_inputs", "the candidate never ran: TypeError"),
    ],
)
def test_what_cannot_be_judged_is_said(candidate, reference, inputs, message, tmp_path):
    (tmp_path / "more.py").write_text(MORE)

    def place(text):
        module, _, name = text.rpartition(":")
        files = {"candidates": HERE / "candidates.py", "more": tmp_path / "more.py"}
        return f"{files[module]}:{name}" if module in files else text

    def of_references(text):
        return place(text) if ":" in text else f"{HERE / 'references.py'}:{text}"

    with pytest.raises(UsageError) as error:
        judge(place(candidate), reference=of_references(reference), inputs=of_references(inputs))
    assert message in str(error.value)
