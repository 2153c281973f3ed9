"""What the native Autograd library is given: what is damaged is refused with a sentence, and registers nothing."""

import ctypes
import random

import pytest
import torch
from opwheel._torch.native import library_file
from opwheel.dispatch import native_autograd

pytestmark = pytest.mark.skipif(bool(native_autograd.why_not()), reason=native_autograd.why_not())

torch.library.define("waves_notation::f", "(Tensor x, Tensor w, float k) -> (Tensor y, Tensor kept)")
torch.library.define("waves_notation::cube", "(Tensor x) -> Tensor")
torch.library.define("waves_notation::cube_training", "(Tensor x) -> (Tensor y, Tensor slope)")
torch.library.impl("waves_notation::cube", "CPU", lambda x: x**3 + 1)
torch.library.impl("waves_notation::cube_training", "CompositeImplicitAutograd", lambda x: (x**3, 3 * x * x))
torch.library.define("waves_notation::back", "(Tensor grad_output, Tensor x, *, float k=1.0) -> (Tensor, Tensor)")
torch.library.define("waves_notation::times", "(Tensor x, Tensor by) -> Tensor")
torch.library.define("waves_notation::times_", "(Tensor(a!) x, Tensor by) -> ()")
HEAD = "opwheel-derivatives 3\n"
OPERATOR = "operator waves_notation::f\n"
BEGIN = HEAD + OPERATOR
OTHER_VERSION = (
    "the derivatives begin with 'operator waves_notation::f', and this Autograd library reads 'opwheel-derivatives 3'; "
    "build the operator library and take the Autograd library with the same opwheel"
)
DESCRIPTION = f"""{BEGIN}fixed_result kept
fixed_argument w
gradient y
argument w
negate
call waves_notation::back 2
formula x 0 w 1
gradient y
argument k
multiply
int -2
float 1e-05
divide
add
result kept
list 0
bool 1
call aten::sum 2 keepdim
subtract
conjugate
argument x
property size -1
result y
property numel
list 2
call aten::expand 2
formula w 0
result kept
gradient y
call_in_place waves_notation::times 2
formula x 0
end"""


@pytest.fixture(scope="module")
def library():
    opened = ctypes.CDLL(str(library_file("autograd")))
    opened.opwheel_autograd_register.restype = ctypes.c_void_p
    return opened


@pytest.fixture(scope="module")
def register(library):
    def start(text):
        """Empty, or why it was not registered."""
        message = ctypes.create_string_buffer(500)
        handle = library.opwheel_autograd_register(text.encode(), message, 500)
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key("waves_notation::f", "Autograd")
        if handle:
            library.opwheel_autograd_remove(ctypes.c_void_p(handle))
            return ""
        assert not has_kernel
        assert message.value
        return message.value.decode(errors="replace")

    return start


def test_a_description_is_registered(register):
    assert register(DESCRIPTION) == ""
    assert register("") == ""  # of a library whose derivatives nobody has asked for


def test_an_operator_for_training_is_called_and_what_else_it_returns_is_dropped(library):
    text = f"{HEAD}operator waves_notation::cube\nrecorded waves_notation::cube_training\nend"
    handle = library.opwheel_autograd_register(text.encode(), ctypes.create_string_buffer(500), 500)
    assert handle
    try:
        x = torch.tensor([2.0], requires_grad=True)
        y = torch.ops.waves_notation.cube(x)
        assert torch.autograd.grad(y, x)[0].item() == 12
        assert y.item() == 8
        with torch.no_grad():
            assert torch.ops.waves_notation.cube(x).item() == 9  # the operator itself
        assert torch.ops.waves_notation.cube(x.detach()).item() == 9
    finally:
        library.opwheel_autograd_remove(ctypes.c_void_p(handle))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OPERATOR, OTHER_VERSION),
        ("opwheel-derivatives 1\nend", "the derivatives begin with 'opwheel-derivatives 1'"),
        (HEAD + "gradient y\nend", "the derivatives name no operator before 'gradient y'"),
        (HEAD + "operator waves_notation::missing\nend", "there is no operator waves_notation::missing"),
        (BEGIN, "the derivatives are damaged: there is no 'end'"),
        (DESCRIPTION + "\nmore", "the derivatives are damaged: after their end there is 'more'"),
        (BEGIN + "sqrt\nend", "f: it is not understood, in 'sqrt'"),
        (BEGIN + "gradient kept y\nend", "f: it has no result 'kept y', in 'gradient kept y'"),
        (BEGIN + "argument z\nend", "f: it has no argument 'z', in 'argument z'"),
        (BEGIN + "argument x\nend", "f: a formula is not complete"),
        (BEGIN + "argument x\nadd\nend", "f: its parts are not there, in 'add'"),
        (BEGIN + "list -1\nend", "'-1' is no number of things, in 'list -1'"),
        (BEGIN + "call aten::neg\nend", "an operator and a number are expected, in 'call aten::neg'"),
        (BEGIN + "call aten::neg -1 self\nend", "'-1' is no number of things"),
        (BEGIN + "call aten::neg 1\nend", "its parts are not there"),
        (BEGIN + "argument x\ngradient y\ncall_in_place waves_notation::times 2\nend", "only a result can be"),
        (BEGIN + "result kept\ncall_in_place aten::neg 1\nend", "aten::neg_ is not aten::neg in place"),
        (BEGIN + "result kept\nargument x\ncall_in_place waves_notation::back 2\nend", "no operator waves_notation::b"),
        (BEGIN + "int 9223372036854775808\nend", "'9223372036854775808' is not a number that it can have"),
        (BEGIN + "int 1.5\nend", "'1.5' is not a number that it can have"),
        (BEGIN + "float 1,5\nend", "'1,5' is not a number that it can have"),
        (BEGIN + "argument x\nproperty\nend", "there is no such property, in 'property'"),
        (BEGIN + "argument x\nproperty color\nend", "there is no such property, in 'property color'"),
        (BEGIN + "argument x\nproperty size\nend", "there is no such property, in 'property size'"),
        (BEGIN + "argument x\nproperty dim 0\nend", "there is no such property, in 'property dim 0'"),
        (BEGIN + "argument x\nproperty size x\nend", "'x' is not a number that it can have"),
        (BEGIN + "property dim\nend", "its parts are not there"),
        (BEGIN + "argument k\nproperty dim\nend", "only a tensor has sizes, a dtype and a device"),
        (BEGIN + "none\nconjugate\nend", "only tensors and numbers have a conjugate"),
        (BEGIN + "fixed_argument k\nend", "'k' is no tensor among its arguments"),
        (BEGIN + "fixed_result x\nend", "it has no result 'x'"),
        (BEGIN + "recorded waves_notation::missing\nend", "there is no operator waves_notation::missing"),
        (BEGIN + "recorded waves_notation::times\nend", "waves_notation::times does not take the same and return"),
        (BEGIN + "bool 2\nend", "'2' is not a number that it can have"),
        (BEGIN + "gradient y\nformula\nend", "pairs are expected"),
        (BEGIN + "gradient y\nformula x\nend", "pairs are expected"),
        (BEGIN + "gradient y\nformula k 0\nend", "'k' is no tensor among its arguments, in 'formula k 0'"),
        (BEGIN + "formula x 0\nend", "its parts are not there"),
        (BEGIN + "argument w\ngradient y\nformula x 0\nend", "there is more than one expression"),
        (BEGIN + "gradient y\nformula x 1\nend", "a derivative has 1 values, its arguments take 2"),
        (BEGIN + "gradient y\nformula x -1\nend", "a derivative has 1 values"),
        (BEGIN + "gradient y\nformula x 7 w 0\nend", "a derivative has 1 values, its arguments take 8"),
    ],
)  # fmt: skip
def test_what_is_refused(register, text, words):
    assert words in register(text)


def test_a_part_is_never_taken_for_the_whole(register):
    for length in range(1, len(DESCRIPTION)):
        assert register(DESCRIPTION[:length])


def test_damage_of_any_kind(register):
    """It is refused, or happens to be another description; the process lives on."""
    choose = random.Random(0)
    lines = DESCRIPTION.split("\n")
    outcomes = set()
    for _ in range(2000):
        damaged = list(lines)
        for _ in range(choose.randint(1, 3)):
            i, j = choose.randrange(len(damaged)), choose.randrange(len(lines))
            kind = choose.randrange(4)
            if kind == 0 and len(damaged) > 1:
                del damaged[i]
            elif kind == 1:
                damaged.insert(i, lines[j])
            elif kind == 2:
                at = choose.randint(0, len(damaged[i]))
                damaged[i] = damaged[i][:at] + choose.choice(" -09:xyé\t") + damaged[i][at + choose.randint(0, 1) :]
            else:
                damaged[i] = " ".join(choose.sample(words := damaged[i].split(" "), len(words)))
        outcomes.add(bool(register("\n".join(damaged))))
    assert outcomes == {True, False}
