"""What the SDK's helpers say of tensors of every dtype, and its twin in Python of shared memory.

Whether memory is shared is compared with sets of bytes that are written out.
"""

import ctypes
import os
import re
import subprocess
import warnings
from random import Random

import pytest
import torch
from opwheel.dispatch import overlap

from tests.interop.fuzzing.bytes import share_bytes, share_places
from tests.non_elementwise import cpp_library

EXAMPLES = int(os.environ.get("TEST_FUZZ_EXAMPLES", "20000"))
SEED = int(os.environ.get("TEST_FUZZ_SEED", "0"))
BYTES = 400  # of the storage that tensors are drawn in

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # quantized dtypes are deprecated
    DTYPES = [
        dtype
        for dtype in sorted({dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}, key=str)
        if not torch.empty(1, dtype=dtype).is_quantized  # those have kernels of their own
    ]
WITHOUT_TYPE = [dtype for dtype in DTYPES if re.fullmatch(r"torch\.(u?int[1-7]|bits\d.*)", str(dtype))]
WITH_TYPE = [dtype for dtype in DTYPES if dtype not in WITHOUT_TYPE]
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(scope="module")
def ops(tmp_path_factory):
    output = tmp_path_factory.mktemp("dtypes") / "libwaves_dtypes.so"
    ctypes.CDLL(str(cpp_library.build(cpp_library.SOURCES / "dtypes.cpp", output, torch_target="2.13")))
    return torch.ops.waves_dtypes


def in_bytes(count, dtype):
    """Elements of which every byte is another one."""
    return torch.arange(1, count * dtype.itemsize + 1, dtype=torch.uint8).view(dtype)


def drawn(random, storage, sizes, strides):
    """A tensor of any dtype, shape and strides somewhere in the storage."""
    dtype = random.choice(DTYPES)
    room = storage.nbytes() // dtype.itemsize
    while True:
        shape = [random.choice(sizes) for _ in range(random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))]
        steps = [random.choice(strides) for _ in shape]
        reach = sum((size - 1) * step for size, step in zip(shape, steps, strict=True) if size > 1)
        if reach < room:
            break
    return torch.empty(0, dtype=dtype).set_(storage, random.randrange(room - reach), shape, steps)


def described(x):
    return f"{x.dtype} {tuple(x.shape)} with strides {x.stride()} from element {x.storage_offset()}"


# Of the tensors that are drawn: few elements of a few bytes, and many of them, with strides without common divisors.
SMALL = (BYTES, (0, 1, 2, 2, 3, 3, 4, 5), (0, 1, 1, 2, 3, 4, 5, 6, 8, 9, 12, 18, 24))
LARGE = (1 << 15, (1, 2, 7, 30, 61), (1, 2, 3, 16, 64, 101, 128, 257, 509, 1021, 1024))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "sizes", "strides"), [SMALL, LARGE], ids=["few", "many"])
def test_shared_bytes(ops, size, sizes, strides):
    storage = torch.zeros(size, dtype=torch.uint8).untyped_storage()
    count, shared = EXAMPLES if size == BYTES else EXAMPLES // 10, 0
    for number in range(SEED, SEED + count):
        random = Random(number)
        a, b = (drawn(random, storage, sizes, strides) for _ in range(2))
        expected = share_bytes(a, b)
        shared += expected
        words = f"TEST_FUZZ_SEED={number}: {described(a)}; {described(b)}"
        assert ops.may_share_memory(a, b).item() == expected, words
        assert (overlap.overlap(a, b) is not overlap.Overlap.NONE) == expected, words
    assert count < 100 or count / 20 < shared < count * 19 / 20


@pytest.mark.slow
@pytest.mark.parametrize(("size", "sizes", "strides"), [SMALL, LARGE], ids=["few", "many"])
def test_elements_that_share_a_place(ops, size, sizes, strides):
    storage = torch.zeros(size, dtype=torch.uint8).untyped_storage()
    for number in range(SEED, SEED + (EXAMPLES if size == BYTES else EXAMPLES // 10)):
        x = drawn(Random(number), storage, sizes, strides)
        expected = share_places(x)
        words = f"TEST_FUZZ_SEED={number}: {described(x)}"
        assert ops.may_overlap_itself(x).item() == expected, words
        assert overlap.may_overlap_itself(x) == expected, words


def test_what_takes_too_many_tries_counts_as_shared(ops):
    """Strides without any order, which are in no view: 2^14 places, all of them different."""
    random = Random(0)
    strides = [random.randrange(1 << 23, 1 << 24) for _ in range(14)]
    x = torch.empty(sum(strides) + 1, dtype=torch.int8).as_strided((2,) * len(strides), strides)
    assert not share_places(x)
    assert ops.may_overlap_itself(x).item()
    assert overlap.may_overlap_itself(x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_element_size(ops, dtype):
    assert ops.itemsize(torch.empty(2, dtype=dtype)).item() == dtype.itemsize


@pytest.mark.parametrize("dtype", WITH_TYPE, ids=str)
def test_dispatch_gives_a_type_of_its_size(ops, dtype):
    x = in_bytes(3, dtype)
    if dtype is torch.bool:
        x = torch.tensor([True, False, True])
    assert torch.equal(ops.copied(x).view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("dtype", [dtype for dtype in WITH_TYPE if dtype is not torch.float4_e2m1fn_x2], ids=str)
def test_sums(ops, dtype):
    """In a type that has room for them: of integers none is lost, and of complex numbers both parts are added."""
    x = torch.tensor([1, 2, 4, 4, 8, 16], dtype=torch.float64)
    x = (x * (1 + 2j) if dtype.is_complex else x).to(dtype)
    if dtype.itemsize >= 4 and not (dtype.is_floating_point or dtype.is_complex):
        x = torch.tensor([2**24, 1, 1, 1], dtype=torch.int64).to(dtype)  # float32 has 24 bits
    values = x.tolist() if dtype.itemsize > 1 or not dtype.is_floating_point else x.float().tolist()
    assert ops.total(x).tolist() == [sum(values).real, sum(values).imag]


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in FLOATING], ids=str)
def test_a_dtype_that_is_not_expected_is_named(ops, dtype):
    x = torch.empty(2, dtype=dtype)
    name = "a dtype that C++ kernels have no name for" if dtype in WITHOUT_TYPE else f"{dtype}"
    expected = ", ".join(map(str, FLOATING))
    with pytest.raises(RuntimeError) as refused:
        ops.checked(x)
    assert f"argument 'x' is {name}" in str(refused.value)
    assert f", expected one of {expected}; convert it with .to(...)" in str(refused.value)
    with pytest.raises(RuntimeError) as refused:
        ops.run_rows(x)
    assert name in str(refused.value)
    if dtype not in WITHOUT_TYPE:
        assert f"run_rows: there is no kernel for {dtype}, only for {expected}; pass one" in str(refused.value)


@pytest.mark.parametrize("dtype", WITHOUT_TYPE, ids=str)
def test_a_dtype_without_a_type_is_refused(ops, dtype):
    with pytest.raises(RuntimeError, match=r"copied: a tensor is of a dtype that C\+\+ kernels have no name for"):
        ops.copied(torch.empty(2, dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["QInt8", "Bits8", "UInt4", "Float8_e8m0fnu"])
def test_a_set_with_a_dtype_without_a_type_does_not_compile(tmp_path, dtype):
    """For torch 2.10, whose C functions have no number for float8_e8m0fnu."""
    source = tmp_path / "kernel.cpp"
    source.write_text(
        '#include "opwheel/kernels.h"\nusing namespace opwheel;\n'
        f"void f(ScalarType x) {{ dispatch<DTypes(floating | ScalarType::{dtype})>(x, []<class T>() {{}}); }}\n"
    )
    done = subprocess.run(
        cpp_library.compile_args("-fsyntax-only", source), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "a kernel cannot be given tensors of a dtype that this set has" in done.stderr
    assert f"ScalarType::{dtype}" in done.stderr.partition("static assertion failed")[0]


def of(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("a", "b", "added", "out", "words"),
    [
        (of(2, 3), of(4, 5), None, of(2, 5), "do not fit: (2, 3) times (4, 5) into (2, 5); pass (m, k), (k, n) and"),
        (of(2, 3), of(3, 5), None, of(2, 4), "do not fit: (2, 3) times (3, 5) into (2, 4)"),
        (of(2, 3), of(3), None, of(2, 1), "do not fit: (2, 3) times (3,) into (2, 1)"),
        (
            of(2, 3),
            of(3, 5, dtype=torch.float64),
            None,
            of(2, 5),
            "torch.float32 times torch.float64 into torch.float32",
        ),
        (of(2, 3), of(3, 5), None, of(2, 5, dtype=torch.float64), "torch.float32 into torch.float64; pass three"),
        (
            of(2, 3),
            of(3, 5),
            of(3),
            of(2, 5),
            "what is added to a matrix product has shape (3,), and the product (2, 5)",
        ),
        (of(2, 3), of(3, 5), of(2, 1), of(2, 5), "has shape (2, 1), and the product (2, 5)"),
        (of(2, 3), of(3, 5), of(5, dtype=torch.float64), of(2, 5), "is torch.float64, and the product torch.float32"),
    ],
)
def test_a_matrix_product_that_does_not_fit(ops, a, b, added, out, words):
    with pytest.raises(RuntimeError) as refused:
        ops.product(a, b, added, out)
    assert words in str(refused.value)
    assert "memory" not in str(refused.value)


@pytest.mark.parametrize(
    "added", [None, of(5), of(1, 5), of(2, 5)], ids=lambda x: x if x is None else str(tuple(x.shape))
)
def test_a_matrix_product(ops, added):
    out = torch.zeros(2, 5)
    ops.product(of(2, 3), of(3, 5), added, out)
    assert out.eq(3 + (added is not None)).all()


def test_rows_of_a_matrix(ops):
    x = torch.arange(6.0).view(3, 2)
    assert torch.equal(ops.rows_of(x, 1, 2), x[1:])
    for given, begin, count, words in (
        (x, 2, 2, "rows 2 to 4 of a matrix of shape (3, 2)"),
        (x, -1, 1, "rows -1 to 0 of"),
        (x[0], 0, 1, "a tensor of shape (2,) is no matrix"),
    ):
        with pytest.raises(RuntimeError) as refused:
            ops.rows_of(given, begin, count)
        assert words in str(refused.value)
