"""What an element-wise operator's declaration alone gives it: shapes, batches, the reference, refusals."""

import muladd
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

OVERLOADS = muladd.library.overloads
A, B = torch.rand(3, 4), torch.rand(3, 4)


@pytest.fixture(params=["meta", "fake"])
def empty(request):
    """Makes tensors without memory, on which the fake kernels run."""
    if request.param == "meta":
        yield lambda *shape, **options: torch.empty(*shape, device="meta", **options)
    else:
        with FakeTensorMode():
            yield torch.empty


def test_an_output_without_memory(empty):
    a, b = empty(3, 4), empty(4)
    assert muladd.muladd(a, b, 1.0, out=empty(3, 4)).shape == (3, 4)
    out = empty(0)
    assert muladd.muladd(a, b, 1.0, out=out) is out
    assert out.shape == (3, 4)
    assert muladd.muladd_(a, b, 1.0) is a


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        ((3, 4), torch.float64, "'out' is torch.float64, but the result is torch.float32"),
        ((2, 2), torch.float32, r"'out' has shape \(2, 2\), but the result has shape \(3, 4\)"),
    ],
    ids=["dtype", "shape"],
)
def test_an_output_without_memory_that_does_not_fit(empty, shape, dtype, words):
    a = empty(3, 4)
    out = empty(shape, dtype=dtype)
    with pytest.raises(RuntimeError, match=words):
        torch.ops.muladd.muladd.out(a, a, 1.0, out=out)


@pytest.mark.parametrize(
    ("b", "words"),
    [
        (B.int(), "argument 'b' is torch.int32; supported dtypes are"),
        (B.to_sparse(), "argument 'b' has layout torch.sparse_coo; only torch.strided"),
        (torch.nested.nested_tensor([B, B]), "argument 'b' is a nested tensor"),
    ],
    ids=["dtype", "layout", "nested"],
)
def test_arguments_that_no_kernel_takes(b, words):
    with pytest.raises(RuntimeError, match=words):
        OVERLOADS["mul"].rule.reference(OVERLOADS["mul"], (A, b))


def test_tensors_of_two_devices():
    with FakeTensorMode(), pytest.raises(RuntimeError, match="on cpu, but the first argument is on meta"):
        OVERLOADS["mul"].rule.fake(OVERLOADS["mul"], (torch.empty(3, device="meta"), torch.empty(3)))


def test_an_output_of_another_device():
    with FakeTensorMode(), pytest.raises(RuntimeError, match="'out' is on meta, but the arguments are on cpu"):
        OVERLOADS["mul.out"].rule.fake(
            OVERLOADS["mul.out"], (torch.empty(3), torch.empty(3), torch.empty(3, device="meta"))
        )


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 1, 5)], ids=str)
@pytest.mark.parametrize("narrow", [torch.float32, torch.bfloat16], ids=str)
def test_strides_are_those_of_pytorch(shape, narrow):
    """Channels-last; views with gaps of another dtype, of which PyTorch reads a copy."""
    images = torch.rand(shape).to(memory_format=torch.channels_last)
    views = [
        (images, images.to(narrow)),
        (torch.rand(4, 8).to(narrow)[:, ::2], torch.rand(4, 4)),
        (torch.rand(4, 4).to(narrow).t(), torch.rand(4, 4)),
    ]
    for a, b in views:
        assert muladd.mul(a, b).stride() == (a * b).stride()
        assert muladd.mul(a.to("meta"), b.to("meta")).stride() == (a.to("meta") * b.to("meta")).stride()
        expected = (a * b).stride()
        with FakeTensorMode() as mode:
            assert muladd.mul(*map(mode.from_tensor, (a, b))).stride() == expected


@pytest.mark.parametrize("name", ["muladd", "muladd.out", "muladd_"])
def test_the_reference_with_the_checks_of_kernels(name):
    """What runs where there is no backend and the policy wants the reference."""
    overload = OVERLOADS[name]
    a, out = A.clone(), torch.empty(0)
    given = (a, B, 2.0, out)[: len(overload.names)]
    result = overload.rule.reference(overload, given)
    torch.testing.assert_close(result, A * B + 2.0)
    if overload.mutates:
        assert result is (out if overload.is_out else a)
    with pytest.raises(RuntimeError, match="supported dtypes"):
        overload.rule.reference(overload, (a.int(), B, 2.0, out)[: len(overload.names)])


@pytest.mark.parametrize("dim", [0, 1])
def test_in_place_for_a_batch(dim):
    a = A.clone()
    result = torch.vmap(lambda a, b: muladd.muladd_(a, b, 2.0), in_dims=dim, out_dims=dim)(a, B)
    torch.testing.assert_close(result, A * B + 2.0)
    assert torch.equal(result, a)


def test_writing_variants_become_functional():
    def twice(a):
        written = muladd.muladd_(a.clone(), B, 1.0)
        return muladd.mul(written, B, out=torch.empty_like(a))

    torch.testing.assert_close(torch.func.functionalize(twice)(A), (A * B + 1.0) * B)


def test_an_empty_output_that_becomes_functional():
    """It grows, if it is no part of another tensor."""

    def into(out):
        return torch.func.functionalize(lambda a: muladd.mul(a, B, out=out(a)))(A)

    torch.testing.assert_close(into(lambda a: a.new_empty(0)), A * B)
    with pytest.raises(RuntimeError, match="'out' is an empty part of another tensor, which cannot be resized"):
        into(lambda a: a.clone()[:0])


def test_a_batch_has_no_place():
    with pytest.raises(RuntimeError, match="into 'a', which has no batch dimension; use the functional variant"):
        torch.vmap(lambda b: muladd.muladd_(torch.ones(4), b, 2.0))(B)
    out = torch.empty(3, 4)
    with pytest.raises(RuntimeError, match=r"muladd\.out cannot be batched; use the functional variant"):
        torch.vmap(lambda a, b, out: torch.ops.muladd.muladd.out(a, b, 1.0, out=out))(A, B, out)


def test_several_results_of_a_batch():
    grad = torch.rand(3, 4)
    results = torch.vmap(torch.ops.muladd.muladd_backward)(grad, A, B)
    for result, expected in zip(results, (grad * B, grad * A), strict=True):
        torch.testing.assert_close(result, expected)
