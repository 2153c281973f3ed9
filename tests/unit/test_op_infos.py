"""Where tools find what they need to know of an operator: its library's module opinfos, or what was registered."""

import copy
import itertools
import pickle
import re
import sys

import muladd
import pytest
import torch
from opwheel.dispatch import Library, Operator, overloads_of, register_python, registration
from opwheel_tools import ErrorSample, OpInfo, Sample, Tolerance
from opwheel_tools.opinfo.lookup import OpInfosError, module_of, op_info_of, register_op_infos

_names = (f"waves_infos_{number}" for number in itertools.count())


def samples(device, dtype, requires_grad):
    yield Sample(torch.ones(3, device=device, dtype=dtype, requires_grad=requires_grad))


def registered(*names):
    """A namespace with operators of these names."""
    namespace = next(_names)
    kernels = {f"{name}(Tensor x) -> Tensor": torch.sin for name in names}
    register_python(namespace, kernels, [Operator(name, reference=torch.sin) for name in names])
    return namespace


def overloads(namespace):
    return overloads_of(torch.library.Library(namespace, "FRAGMENT"))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes a package whose library has an operator "f"; its overload."""

    def write(opinfos=None):
        namespace = registered("f")
        folder = tmp_path / namespace
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        if opinfos is not None:
            (folder / "opinfos.py").write_text(opinfos)
        monkeypatch.syspath_prepend(tmp_path)
        library = object.__new__(Library)  # without the schema library, which needs a compiler
        library.package = library.namespace = namespace
        library.overloads = overloads(namespace)
        monkeypatch.setitem(registration._described, namespace, library)
        return library.overloads["f"]

    return write


def test_an_element_wise_library_needs_none():
    assert all(op_info_of(overload) == OpInfo() for overload in muladd.library.overloads.values())


def test_a_library_without_the_module_has_none(package):
    assert op_info_of(package()) == OpInfo()


def test_a_library_s_module_is_imported_when_it_is_asked_for(package):
    overload = package("import torch\nfrom opwheel_tools import OpInfo\nOP_INFOS = {'f': OpInfo(dtypes=(torch.half,))}")
    module = f"{overload.namespace}.opinfos"
    assert module not in sys.modules
    assert op_info_of(overload).dtypes == (torch.half,)
    assert module in sys.modules
    assert op_info_of(overload) is op_info_of(overload)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero; correct the module"),
        ("import waves_absent", "cannot be imported: ModuleNotFoundError: No module named 'waves_absent'"),
        ("from .opinfos_absent import x", "cannot be imported: ModuleNotFoundError"),
        ("", "OP_INFOS is None, expected a dict from names of operators to opwheel_tools.OpInfo"),
        ("OP_INFOS = ['f']", "OP_INFOS is ['f'], expected a dict"),
        ("OP_INFOS = {'g': None}", "has no operator 'g'; name one of f"),
        ("OP_INFOS = {'f': None}", "::f: None is given, expected an opwheel_tools.OpInfo"),
        (
            "from opwheel_tools import OpInfo\nOP_INFOS = {'f': OpInfo(dtypes=())}",
            "::f: dtypes is (), expected a tuple of",
        ),
    ],
)
def test_a_module_that_is_not_right(package, text, words):
    overload = package(text)
    for _ in range(2):  # what is wrong is not kept as if nothing were declared
        with pytest.raises(OpInfosError, match=rf"^{overload.namespace}\.opinfos.*{re.escape(words)}"):
            op_info_of(overload)


def test_a_module_in_one_that_is_not_right(package):
    namespace = package("1 / 0").namespace
    with pytest.raises(OpInfosError, match=rf"^{namespace}\.opinfos cannot be imported: ZeroDivisionError"):
        module_of(namespace, "opinfos.benchmarks")


def test_modules_of_a_library():
    assert module_of("muladd", "opinfos").OP_INFOS == {}
    assert module_of("muladd", "nothing") is None
    assert module_of("muladd", "nothing.benchmarks") is None
    assert module_of("muladd", "_version.benchmarks") is None  # a module, and no package


def test_what_is_registered_is_found():
    namespace = registered("f", "g")
    info = OpInfo(samples=samples)
    register_op_infos(namespace, {"f": info})
    found = overloads(namespace)
    assert op_info_of(found["f"]) is info
    assert op_info_of(found["g"]) == OpInfo()
    register_op_infos(namespace, {})
    assert op_info_of(found["f"]) == OpInfo()


def test_what_is_registered_for_no_operator():
    with pytest.raises(ValueError, match=r"^waves_infos_\d+ has no operator 'h'; name one of f, g$"):
        register_op_infos(registered("f", "g"), {"h": OpInfo()})
    with pytest.raises(KeyError, match="waves_nowhere"):
        register_op_infos("waves_nowhere", {})


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("samples", [()], "a function that gives calls"),
        ("measured", 1, "a function that gives calls"),
        ("errors", (), "a function that gives calls"),
        ("dtypes", torch.float32, "a tuple of dtypes"),
        ("dtypes", (), "a tuple of dtypes"),
        ("tolerance", {"float32": Tolerance(0, 0)}, "a dict from dtypes"),
        ("tolerance", (1e-5, 1e-5), "a dict from dtypes"),
        ("tolerance", {torch.float32: 1e-5}, "a dict from dtypes"),
        ("baselines", [torch.relu], "a dict from names to functions"),
    ],
)
def test_fields_that_are_not_what_they_are_to_be(field, value, expected):
    namespace = registered("f")
    with pytest.raises(ValueError, match=f"{namespace}::f: {field} is .*, expected {re.escape(expected)}"):
        register_op_infos(namespace, {"f": OpInfo(**{field: value})})


@pytest.mark.parametrize("field", OpInfo._fields)
def test_the_declaration_does_not_have_them(field):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{field}'"):
        Operator("f", reference=torch.sin, **{field: None})


def test_that_of_an_out_variant_follows():
    namespace = next(_names)
    schemas = {"f(Tensor x) -> Tensor": torch.sin, "f.out(Tensor x, *, Tensor(a!) out) -> ()": None}
    register_python(namespace, schemas, [Operator("f", reference=torch.sin)])
    tolerance = {torch.half: Tolerance(0, 1)}
    register_op_infos(namespace, {"f": OpInfo(samples=samples, dtypes=(torch.half,), tolerance=tolerance)})
    found = op_info_of(overloads(namespace)["f.out"])
    (sample,) = found.samples("cpu", torch.half, True)
    assert sample.kwargs["out"].shape == (3,)
    assert not sample.args[0].requires_grad  # out= records no gradients
    assert (found.dtypes, found.tolerance, dict(found.baselines)) == ((torch.half,), tolerance, {})
    assert {type(error) for error in found.errors("cpu")} == {ErrorSample}
    own = OpInfo(dtypes=(torch.double,))
    register_op_infos(namespace, {"f.out": own})
    assert op_info_of(overloads(namespace)["f.out"]) is own


def test_an_info_can_be_changed_and_copied():
    info = OpInfo(dtypes=(torch.half,))
    assert info._replace(samples=samples) == OpInfo(samples=samples, dtypes=(torch.half,))
    assert pickle.loads(pickle.dumps(Tolerance(0, 1))) == Tolerance(0, 1)
    assert copy.copy(info) == info
