"""The kit on operators whose arguments say where to look, and whose results' sizes depend on values."""

import pytest
import torch
from opwheel_tools import ErrorSample, OpInfo, Sample
from opwheel_tools.opinfo.lookup import register_op_infos
from opwheel_tools.testing import checks

from .vision_library import KERNELS, OP_INFOS, OPERATORS, WIDE, overload, rows_at

CPU = torch.device("cpu")
TRACED = ("compiled", "opcheck")


def run(one, only=None):
    """The messages of the checks that fail, and what each has left out."""
    failures, left_out = {}, {}
    for check, samples in checks.cases(one, CPU):
        if check in TRACED if only is None else check not in only:
            continue
        try:
            checks.CHECKS[check](one, samples)
        except Exception as error:
            failures[check] = str(error)
        if samples.left_out:
            left_out.setdefault(check, []).extend(samples.left_out)
    return failures, left_out


@pytest.mark.parametrize("name", OPERATORS)
def test_right_operators_pass(name):
    failures, left_out = run(overload(name))
    assert failures == {}
    assert "large numbers" not in left_out or name == "suppress"


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_right_operators_can_be_traced(name):
    assert run(overload(name), TRACED) == ({}, {})


class TestIndexArguments:
    """Boxes a hundred times as large are in no image, and the index of an image times 0.75 is that of another one."""

    @pytest.mark.parametrize("check", ["large numbers", "values in 16 bits", "vmap", "torch.func"])
    def test_checks_leave_them_alone(self, check):
        seen = []

        def kernel(features, boxes, size, scale):
            seen.append(boxes.detach().clone())
            return KERNELS[schema](features, boxes, size, scale)

        schema = next(iter(KERNELS))
        failures, _ = run(overload("pool_boxes", kernel=kernel), [check])
        assert failures == {}
        given = OP_INFOS["pool_boxes"].samples("cpu", torch.float64, False)
        known = {tuple(row) for sample in given for row in sample.args[1].tolist()}
        assert all(tuple(row) in known for boxes in seen for row in boxes.double().reshape(-1, 5).tolist())

    def test_without_them_the_reference_decides(self):
        """What it refuses is left out with its words, and is no failure."""
        info = OP_INFOS["pool_boxes"]._replace(index_arguments=())
        failures, left_out = run(overload("pool_boxes", info=info), ["large numbers", "values in 16 bits"])
        assert failures == {}
        assert "a hundred times as large: the reference raises IndexError: index " in left_out["large numbers"][0]
        assert "the reference raises IndexError: index " in left_out["values in 16 bits"][0]

    def test_a_name_that_is_none_is_refused(self):
        one = overload("rows_at")
        info = OP_INFOS["rows_at"]._replace(index_arguments=("indices",))
        with pytest.raises(ValueError, match=r"index_arguments names 'indices', .* name one of table, index"):
            register_op_infos(one.namespace, {"rows_at": info})
        with pytest.raises(ValueError, match="index_arguments is 'index', expected a tuple of names"):
            register_op_infos(one.namespace, {"rows_at": info._replace(index_arguments="index")})


class TestEmptyTensors:
    @pytest.mark.parametrize("name", OPERATORS)
    def test_right_operators_accept_what_the_reference_accepts(self, name):
        failures, left_out = run(overload(name), ["empty"])
        assert failures == {}
        assert left_out["empty"]
        assert all("the reference raises" in words or "refused by the kernel" in words for words in left_out["empty"])

    def test_a_kernel_that_refuses_no_boxes(self):
        def kernel(features, boxes, size, scale):
            if not len(boxes):
                raise RuntimeError("there is no box")
            return KERNELS[next(iter(KERNELS))](features, boxes, size, scale)

        failures, _ = run(overload("pool_boxes", kernel=kernel))
        assert set(failures) == {"empty"}
        where = "a size of 0 in 'boxes' dimension 0: raises RuntimeError: there is no box; the reference returns"
        assert failures["empty"].startswith(f"{where} [0, 3, 2, 2]")

    def test_a_kernel_with_another_shape(self):
        failures, _ = run(overload("rows_at", kernel=lambda t, i: t[i] if i.numel() else t[:1]), ["empty"])
        assert "a size of 0 in 'index' dimension 0" in failures["empty"]

    def test_a_kernel_whose_sum_of_nothing_is_not_written(self):
        def sums(device, dtype, requires_grad):
            yield Sample(torch.randn(3, 4, dtype=dtype, requires_grad=requires_grad), torch.tensor([1, 2]))

        one = overload(
            "rows_at",
            kernel=lambda table, index: table[index].sum(0) if index.numel() else torch.full_like(table[0], 7.0),
            reference=lambda table, index: table[index].sum(0),
            info=OpInfo(samples=sums, dtypes=WIDE, index_arguments=("index",)),
        )
        failures, _ = run(one)
        assert set(failures) == {"empty"}

    def test_what_is_declared_to_be_refused_is_left_out(self):
        def refusing(table, index):
            if not index.numel():
                raise RuntimeError("no index")
            return table[index]

        def errors(device):
            yield ErrorSample(Sample(torch.randn(6, 4), torch.zeros(0, dtype=torch.int64)), RuntimeError, "no index")

        info = OP_INFOS["rows_at"]._replace(errors=errors)
        failures, left_out = run(overload("rows_at", kernel=refusing, info=info), ["empty", "errors"])
        assert failures == {}
        assert "a size of 0 in 'index' dimension 0: declared to be refused" in left_out["empty"]

    def test_where_no_size_may_be_0(self):
        def full(table, index):
            if not table.numel() or not index.numel():
                raise ValueError("empty")
            return table[index]

        one = overload("rows_at", kernel=full, reference=full)
        for check, samples in checks.cases(one, CPU):
            if check == "empty":
                checks.CHECKS[check](one, samples)
                assert samples.is_left_out
                assert samples.left_out[-1] == "no size may be 0"
                assert "the reference raises ValueError: empty" in samples.left_out[0]


class TestExceptionsOfTheReference:
    def test_on_a_declared_sample_the_declaration_is_wrong(self):
        def out_of_range(device, dtype, requires_grad):
            yield Sample(torch.randn(2, 4, dtype=dtype), torch.tensor([2]))

        info = OpInfo(samples=out_of_range, dtypes=WIDE)
        failures, _ = run(overload("rows_at", info=info), ["values"])
        assert "the reference raises IndexError: index 2 is out of bounds" in failures["values"]
        assert "on this sample, which is declared in OpInfo(samples=...): correct" in failures["values"]

    def test_a_reference_for_one_dtype(self):
        def narrow(table, index):
            if table.dtype is torch.float64:
                raise TypeError("float32 alone")
            return table[index]

        info = OP_INFOS["rows_at"]._replace(dtypes=(torch.float32,))
        one = overload("rows_at", kernel=rows_at, reference=narrow, info=info)
        failures, left_out = run(one, ["values", "large numbers"])
        assert failures == {}
        assert left_out["values"] == ["in float64: the reference raises TypeError: float32 alone"]
        assert "float32 alone" in left_out["large numbers"][0]

    @pytest.mark.parametrize("check", ["second derivatives", "forward mode", "torch.func", "vmap"])
    def test_in_a_transformation(self, check):
        """A function of the older kind has first derivatives in reverse mode alone."""

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad):
                if torch.is_grad_enabled():
                    raise RuntimeError("once differentiable")
                return 2 * ctx.saved_tensors[0] * grad

        one = overload(
            "rows_at",
            kernel=lambda table, index: (table * table)[index],
            reference=lambda table, index: Square.apply(table)[index],
        )
        failures, left_out = run(one, [check])
        assert failures == {}
        assert "the reference raises" in left_out[check][0]


class TestSizesThatDependOnValues:
    def test_without_a_fake_one_check_says_what_to_write(self):
        one = overload("suppress", fake=None)
        failures, left_out = run(one)
        assert set(failures) == {"fake"}
        assert "fake=lambda boxes, scores, threshold: boxes.new_empty((" in failures["fake"]
        assert "without it the checks opcheck and compiled are left out" in failures["fake"]
        assert len(failures["fake"]) < 800
        assert "the shapes of results depend on values" in left_out["vmap"][0]

    def test_the_others_are_left_out(self):
        failures, left_out = run(overload("suppress", fake=None), TRACED)
        assert failures == {}
        assert set(left_out) == set(TRACED)
        assert left_out["compiled"] == ["it needs Operator(fake=...): see the check 'fake'"]

    def test_what_it_says_is_right(self):
        failures, _ = run(overload("suppress", fake=None), ["fake"])
        text = failures["fake"].partition("fake=")[2].partition("), with")[0]
        failures, left_out = run(overload("suppress", fake=eval(text)), ["fake", "opcheck"])
        assert failures == {}
        assert left_out == {}
