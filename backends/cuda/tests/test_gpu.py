"""What only a GPU shows: streams, graphs, memory, devices, errors. The values are the conformance kit's business."""

import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import muladd
import pytest
import torch
from opwheel.registry import State

REQUIRED = "cuda" in os.environ.get("MULADD_REQUIRE", "").split(",")


@pytest.fixture(autouse=True)
def _gpu():
    status = muladd.backends()["cuda"]
    if status.state is State.LOADED:
        return
    if REQUIRED:
        pytest.fail(f"MULADD_REQUIRE promises a GPU, but the backend is {status.state}: {status.reason}")
    pytest.skip(f"needs a GPU; the backend is {status.state}: {status.reason}")


def values(*shape, dtype=torch.float32, device="cuda"):
    return torch.rand(shape, device=device, dtype=torch.float64).mul_(4).sub_(2).to(dtype)


# Calls that take each kernel: contiguous, along rows, one element at a time.
CALLS = {
    "contiguous": lambda: (muladd.muladd, (values(1000, 64), values(1000, 64), 1.5)),
    "scale and shift": lambda: (muladd.fma, (values(1000, 64), values(64), values(64))),
    "channels": lambda: (muladd.fma, (values(8, 6, 16, 4), values(6, 1, 1), values(6, 1, 1))),
    "transposed": lambda: (muladd.mul, (values(64, 1000).t(), values(1000, 64))),
    "mixed dtypes": lambda: (muladd.add, (values(77, 64, dtype=torch.bfloat16), values(64))),
}
each_kernel = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
REFERENCES = {
    muladd.muladd: lambda a, b, c: a * b + c,
    muladd.fma: lambda a, b, c: a * b + c,
    muladd.mul: lambda a, b: a * b,
    muladd.add: lambda a, b: a + b,
}


def expected(function, args):
    wide = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
    return REFERENCES[function](*wide)


def check(function, args, result):
    torch.testing.assert_close(result.double(), expected(function, args), rtol=1e-5, atol=1e-5)


@each_kernel
def test_runs_on_the_current_stream_without_waiting(call):
    function, args = call()
    function(*args)  # the kernel is in memory
    old = [arg for arg in args if isinstance(arg, torch.Tensor)]
    new = [torch.empty_like(arg).copy_(values(*arg.shape, dtype=arg.dtype)) for arg in old]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        function(*args)  # the allocator has memory for this stream
        stream.synchronize()
        torch.cuda._sleep(1_000_000_000)  # clock cycles: about half a second
        for arg, values_to_come in zip(old, new, strict=True):
            arg.copy_(values_to_come)
        start = time.perf_counter()
        result = function(*args)
        elapsed = time.perf_counter() - start
        assert not stream.query(), "the call waited for the stream"
    assert elapsed < 0.2
    assert torch.cuda.default_stream().query()
    stream.synchronize()
    check(function, args, result)


@each_kernel
def test_allocates_nothing_but_the_result(call):
    function, args = call()
    out = function(*args)
    torch.cuda.synchronize()

    def allocations(run):
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        kept = run()
        return torch.cuda.memory_stats()["allocation.all.allocated"] - before, kept

    assert allocations(lambda: function(*args))[0] == 1
    assert allocations(lambda: function(*args, out=out))[0] == 0
    check(function, args, out)


@each_kernel
def test_graph(call):
    function, args = call()
    function(*args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(*args)
    for _ in range(3):
        for arg in args:
            if isinstance(arg, torch.Tensor):
                arg.copy_(values(*arg.shape, dtype=arg.dtype))
        graph.replay()
        torch.cuda.synchronize()
        check(function, args, result)


def in_a_fresh_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)


def test_graph_of_the_first_call_in_a_process():
    """The kernel is loaded while the stream is being captured."""
    result = in_a_fresh_process(
        "import torch, muladd\n"
        "a, b = torch.full((999,), 3.0, device='cuda'), torch.full((999,), 2.0, device='cuda')\n"
        "torch.cuda.synchronize()\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n"
        "    result = muladd.muladd(a, b, 1.0)\n"
        "graph.replay()\n"
        "torch.cuda.synchronize()\n"
        "assert bool((result == 7).all())\n"
    )
    assert result.returncode == 0, result.stderr[-3000:]


def test_graph_of_forward_and_backward():
    a, b, grad = values(512, 64).requires_grad_(), values(512, 64).requires_grad_(), values(512, 64)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(muladd.muladd(a, b, 1.0), (a, b), grad)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        grads = torch.autograd.grad(muladd.muladd(a, b, 1.0), (a, b), grad)
    for _ in range(3):
        grad.copy_(values(512, 64))
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(grads, ((grad * b).detach(), (grad * a).detach()))


def test_import_does_not_initialise_cuda_and_a_fork_can_use_it():
    result = in_a_fresh_process(
        "import os, torch, muladd\n"
        "muladd.require('cuda')\n"
        "assert not torch.cuda.is_initialized()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    x = torch.ones(5, device='cuda')\n"
        "    os._exit(0 if float(muladd.mul(x, x).sum()) == 5 else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    assert result.returncode == 0, result.stderr[-3000:]


def test_second_device():
    if torch.cuda.device_count() < 2:
        pytest.skip("there is only one device")
    args = (values(100, device="cuda:1"), values(100, device="cuda:1"))
    with torch.cuda.device(0):
        result = muladd.mul(*args)
        assert torch.cuda.current_device() == 0
    assert result.device == torch.device("cuda", 1)
    check(muladd.mul, args, result)
    with pytest.raises(RuntimeError, match=r"cuda:0.*cuda:1|cuda:1.*cuda:0"):
        muladd.mul(args[0], values(100, device="cuda:0"))


def test_out_of_memory_is_an_error_and_the_process_goes_on():
    huge = torch.ones((1,), device="cuda").expand(2**44)
    for call in (muladd.muladd, torch.ops.muladd.muladd):
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            call(huge, huge, 1.0)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        muladd.muladd(huge, huge, 1.0, out=torch.empty(0, device="cuda"))
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        muladd.muladd(huge.requires_grad_(), huge, 1.0)
    args = (values(100), values(100))
    check(muladd.mul, args, muladd.mul(*args))


def test_out_of_memory_with_the_second_of_two_gradients():
    """The first one is free again when the error is raised: there is room for one alone."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    one = free * 2 // 3 // 4  # elements of float32
    wide = torch.ones(1, device="cuda").expand(one)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        torch.ops.muladd.muladd_backward(wide, wide, wide)
    torch.cuda.empty_cache()


def test_an_error_of_an_earlier_kernel_is_reported_by_the_launch():
    result = in_a_fresh_process(
        "import torch, muladd\n"
        "x, out = torch.ones(8, device='cuda'), torch.ones(8, device='cuda')\n"
        "torch.cuda.synchronize()\n"
        "try:\n"
        "    x[torch.tensor([99], device='cuda')]\n"  # an assertion on the device
        "    torch.cuda.synchronize()\n"
        "except RuntimeError:\n"
        "    pass\n"
        "try:\n"
        "    muladd.mul(x, x, out=out)\n"
        "except RuntimeError as error:\n"
        "    print('caught:', error)\n"
    )
    assert "caught:" in result.stdout, result.stderr[-3000:]
    assert "[OPWHEEL:LAUNCH] mul.out: " in result.stdout
    assert "CUDA" in result.stdout or "cuda" in result.stdout


ROWS, COLUMNS = 70_000, 32_768  # 2.3e9 elements, 4.6 GB of float16


@pytest.fixture(scope="module")
def huge():
    if muladd.backends()["cuda"].state is not State.LOADED:
        return None
    if torch.cuda.mem_get_info()[0] < 20e9:
        pytest.skip("needs 20 GB of free device memory")
    row = torch.arange(COLUMNS, device="cuda").remainder(13).to(torch.float16)
    column = torch.arange(ROWS, device="cuda").remainder(7).to(torch.float16)
    return row * column[:, None]


@pytest.mark.parametrize("kernel", ["contiguous", "rows", "strided", "mixed dtypes", "in place"])
def test_more_than_2_to_the_31_elements(huge, kernel):
    """Compared slice by slice with the same call on small tensors, over the places where 32 bits end."""
    scale = values(COLUMNS, dtype=torch.float16)
    shift = values(COLUMNS, dtype=torch.float16)
    if kernel == "contiguous":
        result, part = muladd.muladd(huge, huge, 0.5), lambda rows: muladd.muladd(huge[rows], huge[rows], 0.5)
    elif kernel == "rows":
        result, part = muladd.fma(huge, scale, shift), lambda rows: muladd.fma(huge[rows], scale, shift)
    elif kernel == "strided":
        columns_first = huge.t().contiguous().t()
        result, part = muladd.mul(huge, columns_first), lambda rows: muladd.mul(huge[rows], huge[rows])
    elif kernel == "mixed dtypes":
        wide = torch.empty_like(huge, dtype=torch.float32)
        muladd.mul(huge, scale.float(), out=wide)
        result, part = wide, lambda rows: muladd.mul(huge[rows], scale.float())
    else:
        result, part = muladd.muladd_(huge.clone(), scale, 0.5), lambda rows: muladd.muladd(huge[rows], scale, 0.5)
    boundaries = {0, ROWS - 4, *(2**power // COLUMNS for power in (29, 30, 31))}
    for boundary in sorted(boundaries):
        rows = slice(max(boundary - 4, 0), boundary + 4)
        assert torch.equal(result[rows], part(rows)), f"{kernel}: rows {rows}"
    for start in range(0, ROWS, 1000):  # every element, in pieces
        rows = slice(start, start + 1000)
        assert torch.equal(result[rows], part(rows)), f"{kernel}: rows {rows}"


SHORT_RUN = Path(__file__).with_name("short_run.py")


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_compute_sanitizer(tool):
    sanitizer = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path=f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"
    )
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed")
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, str(SHORT_RUN)]
    # Without the cache each tensor is an allocation of its own: an access past its end is seen.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=500)
    report = (result.stdout + result.stderr)[-4000:]
    if "Device not supported" in report:
        pytest.skip("compute-sanitizer does not support this device or system")
    assert result.returncode == 0, report
    assert "every call was right" in result.stdout, report


def test_the_short_run():
    result = subprocess.run([sys.executable, str(SHORT_RUN)], capture_output=True, text=True, check=False)
    assert "every call was right" in result.stdout, result.stderr[-3000:]


def test_several_threads_and_streams():
    from concurrent.futures import ThreadPoolExecutor

    def work(seed):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for function, args in (
                call() for call in itertools.islice(itertools.cycle(CALLS.values()), seed, seed + 5)
            ):
                result = function(*args)
                stream.synchronize()
                check(function, args, result)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(32)))
