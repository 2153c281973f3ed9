"""``transformer_ops bench``: a quick run has every operator next to its baselines, and finds no wrong result."""

import json
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import transformer_ops
from matplotlib.image import imread
from opwheel.dispatch.overload import as_tuple
from opwheel.memory.usage import peak
from opwheel_tools import OpInfo
from opwheel_tools.bench import from_samples, machine, sweep, sweep_results
from opwheel_tools.bench.results import Results, ResultsFileError
from opwheel_tools.bench.sampling import Precision
from opwheel_tools.bench.suite import Form
from opwheel_tools.opinfo.lookup import op_info_of
from transformer_ops.opinfos import tensors

from tests.command_line import invoke


@pytest.mark.nightly
def test_quick(tmp_path):
    file = tmp_path / "run.json"
    picture = tmp_path / "run.png"
    options = ["--quick", "--skip", "reference, compiled", "--json", str(file), "--plot", str(picture)]
    result = invoke("transformer_ops", "bench", *options)
    assert result.exit_code == 0, result.stdout + result.stderr
    run = json.loads(file.read_text())
    assert run["findings"] == []
    assert imread(picture).std() > 0.05  # something is drawn
    rows = {(row["group"], row["form"]): set(row["measurements"]) for row in run["rows"]}
    assert {group for group, _ in rows} == set(transformer_ops.library.overloads)
    for operator, baseline in {
        "rms_norm": "F.rms_norm",
        "fused_add_rms_norm": "F.rms_norm",
        "layer_norm": "F.layer_norm",
        "softmax": "F.softmax",
        "swiglu": "F.silu(a) * b",
        "geglu": "F.gelu(a) * b",
        "cross_entropy_rows": "F.cross_entropy",
        "fused_linear_cross_entropy": "F.cross_entropy",
    }.items():
        for form in ("new", "forward+backward"):
            assert {"operator", "reference", baseline} <= rows[operator, form]


WITH_BASELINES = {
    name: baselines
    for name, one in transformer_ops.library.overloads.items()
    if (baselines := op_info_of(one).baselines)
}


def agrees(overload, baseline, sample):
    expected = as_tuple(overload.op(*deepcopy(sample.args), **sample.kwargs))
    try:
        found = as_tuple(baseline(*overload.bind(deepcopy(sample.args), sample.kwargs)))
    except (NotImplementedError, ValueError):  # it has fewer modes
        return False
    return all(torch.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in zip(found, expected, strict=False))


@pytest.mark.parametrize("operator", WITH_BASELINES)
def test_a_baseline_computes_the_same(operator):
    """Called with all arguments, as a measurement has it: one that does not is left out there."""
    overload = transformer_ops.library.overloads[operator]
    for baseline in WITH_BASELINES[operator].values():
        samples = op_info_of(overload).samples("cpu", torch.float32, False)
        assert any(agrees(overload, baseline, sample) for sample in samples)


@pytest.mark.parametrize(("mebibytes", "rows", "rows_of_two_bytes"), [(32, 32768, 32768), (256, 65536, 131072)])
def test_sizes_that_are_measured(monkeypatch, mebibytes, rows, rows_of_two_bytes):
    """Forward one beyond the caches as well, backward without it; geglu in a model's sizes alone."""
    monkeypatch.setattr(machine, "last_level_caches", lambda: mebibytes << 20)
    model, in_caches = (4096, 2048), (512, 4096)
    large = {torch.float32: (rows, 2048), torch.bfloat16: (rows_of_two_bytes, 2048)}
    for operator in ("rms_norm", "geglu"):
        expected = [
            (form, dtype, f"measured {index}", shape)
            for dtype in (torch.float32, torch.bfloat16)
            for form in (Form.NEW, Form.BACKWARD)
            for index, shape in enumerate([model, in_caches, large[dtype]])
            if shape != large[dtype] or (operator == "rms_norm" and form is Form.NEW)
        ]
        cases = list(from_samples.cases(transformer_ops.library.overloads.values(), "cpu", [operator]))
        assert [
            (case.form, case.dtype, case.layout, tuple(case.sample("cpu", case.form is Form.BACKWARD).args[0].shape))
            for case in cases
        ] == expected


def test_what_is_written_into_given_memory_has_a_limit():
    results = Results({}, {})
    cases = list(from_samples.cases(transformer_ops.library.overloads.values(), "cpu", ["rms_norm.out"]))
    assert [case.form for case in cases] == [Form.NEW] * 6
    assert tuple(cases[0].sample("cpu", False).kwargs["out"].shape) == (4096, 2048)
    from_samples.run(
        cases[1], "cpu", Precision(error=0.5, seconds=0.01, rounds=(3, 5)), results, skip=[from_samples.COMPILED]
    )
    (row,) = results.rows
    assert set(row.measurements) == {from_samples.OURS, from_samples.REFERENCE, from_samples.TRIAD}
    assert row.measurements[from_samples.TRIAD].bytes == (2 * 512 * 4096 + 4096) * 4
    assert from_samples.compared_with(row) == from_samples.REFERENCE


def test_where_memory_is_the_limit_operands_are_made_anew(monkeypatch):
    """Which pages of memory they lie in decides up to a tenth of the time: one draw of them is not a measurement."""
    made = []
    make = tensors.randn
    monkeypatch.setattr(tensors, "randn", lambda *shape, **options: made.append(shape) or make(*shape, **options))
    overloads = transformer_ops.library.overloads.values()
    skip = [from_samples.REFERENCE, from_samples.COMPILED, "F.rms_norm"]
    for name, times in {"rms_norm": 1, "rms_norm.out": from_samples.PLACEMENTS}.items():
        case = next(from_samples.cases(overloads, "cpu", [name]))
        made.clear()
        results = Results({}, {})
        from_samples.run(case, "cpu", Precision(error=0.5, seconds=0.01, rounds=(3, 5)), results, skip)
        assert made == [(4096, 2048), (2048,)] * (1 + times)  # once for the comparison with the reference
        (row,) = results.rows
        assert all(one.samples >= 1 + 2 * times for one in row.measurements.values())


def test_sweep(tmp_path):
    file, picture = tmp_path / "sweep.json", tmp_path / "sweep.png"
    only = [word for name in ("softmax", "rope", "cross_entropy_rows") for word in ("--only", name)]
    options = [*only, "--compiled-by", "eager", "--json", file, "--plot", picture]
    result = invoke("transformer_ops", "bench", "--sweep", "--quick", *options)
    assert result.exit_code == 0, result.output
    assert imread(picture).std() > 0.05
    found = sweep_results.load(file)
    assert found.left_out == []
    points = {(one.operator, one.rows, one.width, one.dtype, one.layout) for one in found.points}
    assert {one.layout for one in found.points if "eager" in one.compiled} == {"contiguous"}
    assert result.stdout.count("compiled by eager: ") == sum(one.layout == "contiguous" for one in found.points)
    widths = {"softmax": (16, 33), "rope": (16,), "cross_entropy_rows": (16, 33)}  # a rotation has pairs
    calls = [(name, 4, width, "float32") for name, some in widths.items() for width in some]
    assert points == {(*call, layout) for call in calls for layout in sweep.LAYOUTS}
    assert f"{len(points)} points, " in result.stdout


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--skip", "reference"], "none of --device"),
        (["--only", "softmax", "--only", "attention"], "'attention'"),
        (["--compiled-by", "inductr"], "no backend 'inductr'"),
    ],
)
def test_sweep_refuses(options, problem):
    result = invoke("transformer_ops", "bench", "--sweep", "--quick", *options)
    assert result.exit_code == 2
    assert problem in result.output


def test_compiled_code_is_measured_in_a_sweep_alone():
    result = invoke("transformer_ops", "bench", "--quick", "--compiled-by", "eager")
    assert result.exit_code == 2
    assert "goes with --sweep" in result.output


def test_a_backend_that_does_not_work_is_left_out():
    point = sweep.Point(transformer_ops.library.overloads["softmax"], 4, 33, torch.float32, "contiguous")
    results = sweep_results.SweepResults({}, {})
    sweep.run(point, results)
    sweep.run_compiled(point, "runtime_error_TESTING_ONLY", results)
    sweep.run_compiled(point, "eager", results)
    (found,) = results.points
    assert set(found.compiled) == {"eager"}
    assert results.left_out[0].startswith("runtime_error_TESTING_ONLY of softmax torch.float32: ")


def test_results_of_a_sweep_are_read_as_they_were_written(tmp_path):
    points = [
        sweep_results.Compared("rope", 8, 2, "float32", "contiguous", 1.234567, 0.91234, (0.92, 0.9, 0.9555)),
        sweep_results.Compared("rope", 8, 4, "float32", "contiguous", 0.5, 1.5, (), {"inductor": 0.75}),
        sweep_results.Compared("rope", 64, 2, "float32", "transposed", 1234.5, 2.0),
    ]
    file = tmp_path / "sweep.json"
    sweep_results.SweepResults({"cpu": "one"}, {"threads": 2}, points, ["something"]).save(file)
    found = sweep_results.load(file)
    assert (found.machine, found.settings, found.left_out) == ({"cpu": "one"}, {"threads": 2}, ["something"])
    rounded = replace(points[0], microseconds=1.23, first=0.912, again=(0.92, 0.9, 0.956))
    assert found.points == [rounded, points[1], replace(points[2], microseconds=1230.0)]
    assert [point.ratio for point in found.points] == [0.92, 1.5, 2.0]
    file.write_text(file.read_text().replace('"version": 2', '"version": 1'))
    with pytest.raises(ResultsFileError, match="measure again"):
        sweep_results.load(file)
    file.write_text("[]")
    with pytest.raises(ResultsFileError, match="bench --sweep --json"):
        sweep_results.load(file)


def test_the_whole_sweep():
    points = list(sweep.points(transformer_ops.library.overloads.values()))
    names = dict.fromkeys(point.overload.operator.name for point in points)
    losses = ["cross_entropy_rows", "fused_linear_cross_entropy"]
    others = ["rms_norm", "fused_add_rms_norm", "layer_norm", "swiglu", "geglu", "softmax", "log_softmax", "rope"]
    assert sorted(names) == sorted(losses + others)
    of_one = [point for point in points if point.overload.operator.name == "softmax"]
    assert len({(one.dtype, one.layout) for one in of_one}) == 4 * 6
    assert len({one.width for one in of_one}) == 25
    assert len({one.rows for one in of_one}) == 6
    assert max(one.rows * one.width for one in of_one) == sweep.MOST_ELEMENTS


@pytest.mark.parametrize("layout", sweep.LAYOUTS)
def test_layouts_of_a_sweep(layout):
    x = torch.arange(15.0).view(3, 5)
    y = sweep.LAYOUTS[layout](x)
    assert y.equal(x[:1].expand(3, 5) if layout == "one row for all" else x)
    strides = {"rows apart": (8, 1), "every other element": (10, 2), "transposed": (1, 3), "one row for all": (0, 1)}
    assert y.stride() == strides.get(layout, (5, 1))
    assert y.storage_offset() == (layout == "unaligned")


def test_what_is_slower_in_a_sweep_is_measured_again(monkeypatch):
    def swept(make, rows, width):
        x = make(rows, width)
        if x.dtype is torch.float64:
            raise RuntimeError("not in float64\nmore")
        slow = lambda: [x.sum() for _ in range(20)]  # noqa: E731
        return (slow, x.sum) if x.is_contiguous() else (x.sum, slow)

    monkeypatch.setattr(sweep, "op_info_of", lambda _: OpInfo(swept=swept))
    overload = transformer_ops.library.overloads["softmax"]
    results = sweep_results.SweepResults({}, {})
    for dtype in (torch.float32, torch.float64):
        for layout in ("contiguous", "transposed", "unaligned"):
            sweep.run(sweep.Point(overload, 4, 33, dtype, layout), results)
    assert [len(point.again) for point in results.points] == [3, 0, 3]
    slow, fast, _ = results.points
    assert slow.ratio < 0.5 < 2 < fast.ratio
    assert slow.ratio in slow.again
    assert {point.layout for point in results.slower} == {"contiguous", "unaligned"}
    assert results.left_out == ["softmax torch.float64: not in float64"]


def cross_entropy(loss, logits, target):
    return torch.autograd.grad(loss(logits, target), logits)


def linear_cross_entropy(loss, x, weight, target):
    return torch.autograd.grad(loss(x, weight, target), (x, weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_of_losses(dtype):
    """Forward and backward: cross_entropy takes at most 0.6 of PyTorch's, fused_linear_cross_entropy at most 0.3."""
    functional = torch.nn.functional
    rows, width, classes = 2048, 64, 32_000
    x, weight = (torch.randn(n, width, dtype=dtype, requires_grad=True) for n in (rows, classes))
    target = torch.randint(classes, (rows,))
    logits = torch.randn(512, classes, dtype=dtype, requires_grad=True)

    def most(run, loss, *arguments):
        run(loss, *arguments)  # what is made once does not count
        return peak(lambda: run(loss, *arguments))

    ours = most(cross_entropy, transformer_ops.cross_entropy, logits, target[:512])
    assert ours <= 0.6 * most(cross_entropy, functional.cross_entropy, logits, target[:512])
    ours = most(linear_cross_entropy, transformer_ops.fused_linear_cross_entropy, x, weight, target)
    plain = most(linear_cross_entropy, lambda x, w, t: functional.cross_entropy(x @ w.t(), t), x, weight, target)
    assert ours <= 0.3 * plain
