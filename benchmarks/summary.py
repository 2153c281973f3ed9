"""The few rows of committed results that README and docs show, as a picture and as tables.

    python -m benchmarks.summary

draws benchmarks/results/summary.png and writes tables into the README and into pages of docs. What is slower than
PyTorch is there as well, and so is another machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opwheel_tools.bench import sweep_results
from opwheel_tools.bench.from_samples import COMPILED, FUNCTIONAL, OURS, REFERENCE, TRIAD, compared_with, measured_rows
from opwheel_tools.bench.results import Measurement, Results, Row, load
from opwheel_tools.bench.suite import OVERHEAD, Form
from opwheel_tools.bench.tables import DISTURBED, format_elements, format_time

from benchmarks import sweep_tables
from benchmarks.gpu import document as gpu_document
from benchmarks.gpu import tables as gpu_tables

ROOT = Path(__file__).parent
RESULTS = ROOT / "results/cpu.json"
ALLOCATOR_RESULTS = ROOT / "results/allocators.json"
ANOTHER_MACHINE = ROOT / "results/cpu-xeon.json"
TRANSFORMER_RESULTS = ROOT / "results/transformer.json"
MODEL_RESULTS = ROOT / "results/language_model.json"
DIGITS_RESULTS = ROOT / "results/digits.json"
DEFINE_RESULTS = ROOT / "results/define.json"
SWEEP_RESULTS = ROOT / "results/transformer-sweep.json"
SPEED_RESULTS = ROOT / "results/gpu-speed.json"
PICTURE = ROOT / "results/summary.png"
DOCS = ROOT.parent / "docs"
PAGES = (
    ROOT.parent / "README.md",
    *(DOCS / f"{name}.md" for name in ("benchmarks", "transformer", "cuda", "operator-in-five-minutes")),
)
END = "<!-- end of what benchmarks/summary.py writes -->\n"

_LARGE, _IMAGES, _SEQUENCES = 2**24, "[N,C,H,W]*[C,1,1]", "[B,T,D]*[B,1,D]"
ROWS = {
    "new result, 2^24": f"new/new/contiguous/float32/{_LARGE}",
    "new result, 2^26": f"new/new/contiguous/float32/{2**26}",
    "forward + backward, 2^24": f"backward/forward+backward/contiguous/float32/{_LARGE}",
    "scale and shift [N,C,H,W], 2^24": f"scale-shift/new/{_IMAGES}/float32/{_LARGE}",
    "scale and shift [B,T,D], 2^24": f"scale-shift/new/{_SEQUENCES}/float32/{_LARGE}",
    "out=, 2^24": f"out/out/contiguous/float32/{_LARGE}",
    "out=, 2^24, bfloat16": f"out/out/contiguous/bfloat16/{_LARGE}",
    "out=, 2^24, one factor transposed": f"strided/out/transposed/float32/{_LARGE}",
    "in place, 2^24": f"in-place/in-place/contiguous/float32/{_LARGE}",
    "new result, 2^20": f"new/new/contiguous/float32/{2**20}",
    "new result, 2^14": f"new/new/contiguous/float32/{2**14}",
    "4 elements": "overhead/no_grad/contiguous/float32/4",
    "4 elements, forward + backward": "overhead/forward+backward/contiguous/float32/4",
}
"""What a row is called, and the case's name in the file. float32 unless it says otherwise."""
# What a call on 4 elements is called, its form, who calls, and whose time it is compared with.
CALLS = (
    ("`muladd.muladd`, no_grad", "no_grad", "muladd", "addcmul"),
    ("`torch.ops.muladd.muladd.default`, no_grad", "no_grad", "torch.ops", "addcmul"),
    ("`torch.ops.aten.addcmul.default`, no_grad: PyTorch's own", "no_grad", "torch.ops.aten", "addcmul"),
    ("forward, inputs require gradients", "forward", "muladd", "addcmul"),
    ("forward and backward", "forward+backward", "muladd", "addcmul"),
    ("`out=`", "out", "muladd", "addcmul"),
    ("in place, over `mul_`, which computes less", "in-place", "muladd", "mul_"),
    ("in `torch.compile`, no_grad", "no_grad", "muladd in compile", "compile"),
)
BASELINES = {"eager": "a * b + c", "addcmul": "torch.addcmul"}
# Who computes a new result, and what keeps the memory for it.
KEEPERS = {
    "muladd": "muladd's result cache",
    "addcmul": "nothing",
    "addcmul, glibc": "the C library, told to: `GLIBC_TUNABLES`",
    "addcmul, tcmalloc": "tcmalloc, preloaded",
    "addcmul, jemalloc": "jemalloc, preloaded",
    "addcmul, out=": "the program, with `out=`",
}
ALLOCATORS = ("addcmul, glibc", "addcmul, tcmalloc", "addcmul, jemalloc")


def rows(results: Results) -> dict[str, Row]:
    """The rows of the summary by what they are called."""
    named = {row.name: row for row in results.rows}
    return {label: named[name] for label, name in ROWS.items()}


def table(results: Results) -> str:
    """The rows in Markdown: muladd's time, and the times of others over it."""
    lines = [f"| float32 unless said | muladd | {' | '.join(BASELINES.values())} |", "|---|---|---|---|"]
    for label, row in rows(results).items():
        ours = row.measurements["muladd"]
        cells = [label, format_time(ours.median_s), *(_compared(ours, row.measurements[name]) for name in BASELINES)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Measured on: {results.measured_on()}.", ""])


def parts(results: Results) -> str:
    """What reused memory, huge pages and one pass each give, in Markdown: muladd against addcmul with the same."""
    new, out = (_row(results, f"{group}/{group}/contiguous/float32/{_LARGE}").measurements for group in ("new", "out"))
    pairs = {
        "new result, as installed": (new["muladd"], new["addcmul"], ""),
        "new result in huge pages, nothing reused": (
            new["huge pages"],
            new["addcmul, huge pages"],
            " with PyTorch's own switch",
        ),
        "new result, neither": (new["small pages"], new["addcmul"], ""),
        "into an output that is there": (out["muladd"], out["addcmul"], ""),
    }
    lines = [
        f"| {label} | {format_time(ours.median_s)} | {format_time(theirs.median_s)}{note} |"
        for label, (ours, theirs, note) in pairs.items()
    ]
    return "\n".join(["| 2^24 float32 | muladd | `torch.addcmul` |", "|---|---|---|", *lines, ""])


def allocators(results: Results) -> str:
    """A new result where allocators keep memory, in Markdown; what was not measured is named with the reason."""
    measured = _row(results, ROWS["new result, 2^24"]).measurements
    lines = ["| new result, 2^24 float32 | what keeps its memory | time |", "|---|---|---|"]
    for name, keeper in KEEPERS.items():
        if name in measured:
            function = "muladd" if name == "muladd" else "`torch.addcmul`"
            lines.append(f"| {function} | {keeper} | {_time(measured[name])} |")
    missing = [
        note for note in results.notes if note.startswith(tuple(name for name in ALLOCATORS if name not in measured))
    ]
    return "\n".join([*lines, "", *(f"{note}.\n" for note in missing), f"Measured on: {results.measured_on()}.", ""])


def _time(one: Measurement) -> str:
    return format_time(one.median_s) + (" noisy" if one.spread > DISTURBED else "")


def _with_kept_memory(row: Row) -> Measurement | None:
    """Of the allocators that keep memory the one with which addcmul is fastest; None where there is none."""
    measured = [row.measurements[name] for name in ALLOCATORS if name in row.measurements]
    return min(measured, key=lambda one: one.median_s, default=None)


def _row(results: Results, name: str) -> Row:
    return next(row for row in results.rows if row.name == name)


def calls(results: Results) -> str:
    """What a call costs, in Markdown; a dash where the results have no such measurement."""
    forms = {row.form: row.measurements for row in results.rows if row.group == OVERHEAD}
    lines = ["| a call on 4 elements | time | over | ratio |", "|---|---|---|---|"]
    for label, form, name, over in CALLS:
        measured = forms.get(form, {})
        cells = ["-", "-"]
        if name in measured and over in measured:
            cells = [format_time(measured[name].median_s), f"{1 / _ratio(measured[name], measured[over]):.2f}"]
        lines.append(f"| {label} | {cells[0]} | `{over}` | {cells[1]} |")
    return "\n".join([*lines, ""])


def functional(results: Results) -> str:
    """Forward and backward of operators, and the same under torch.func, in Markdown."""
    lines = [
        "| forward and backward | operator | under torch.func | ratio | reference |",
        "|---|---|---|---|---|",
    ]
    for row in measured_rows(results, Form.BACKWARD):
        if FUNCTIONAL not in row.measurements:
            continue
        ours, other, reference = (row.measurements[name] for name in (OURS, FUNCTIONAL, REFERENCE))
        times = [format_time(ours.median_s), format_time(other.median_s), _compared(ours, other)]
        lines.append(f"| {called(row)} | {' | '.join(times)} | {format_time(reference.median_s)} |")
    return "\n".join([*lines, "", f"Measured on: {results.measured_on()}.", ""])


def operators(results: Results) -> str:
    """A library's operators, forward, and forward with backward, in Markdown: the times of others over theirs."""
    lines = [
        "| | forward | PyTorch | compiled | and backward | PyTorch | compiled |",
        "|---|---|---|---|---|---|---|",
    ]
    with_backward = {called(row): row for row in measured_rows(results, Form.BACKWARD)}
    for row in measured_rows(results, Form.NEW):
        cells = [called(row), *_times(row), *_times(with_backward.get(called(row)))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Measured on: {results.measured_on()}.", ""])


def called(row: Row) -> str:
    """Operator, size and dtype."""
    return f"`{row.group}`, {format_elements(row.elements)}, {row.dtype}"


def _times(row: Row | None) -> list[str]:
    """Its time, that of PyTorch's function (the reference where it has none) and of the compiled reference over it."""
    if row is None:
        return ["-"] * 3
    compared = [row.measurements.get(name) for name in (compared_with(row), COMPILED)]
    ours = row.measurements[OURS]
    return [format_time(ours.median_s), *("-" if one is None else _compared(ours, one) for one in compared)]


def memory(results: Results) -> str:
    """The most memory that the losses take, forward with backward, in Markdown: theirs over that of others."""
    lines = []
    for row in measured_rows(results, Form.BACKWARD):
        measured = row.measurements
        peaks = [measured[name].peak_bytes for name in (OURS, compared_with(row), COMPILED) if name in measured]
        if "cross_entropy" in row.group and all(peaks):
            ours, *others = peaks
            shares = [f"{ours / other:.2f}" for other in others]
            lines.append(f"| {' | '.join([called(row), f'{ours / 2**20:.0f} MiB', *shares])} |")
    head = ["| forward and backward | peak memory | of PyTorch's | of the compiled one's |", "|---|---|---|---|"]
    return "\n".join([*head, *lines, ""]) if lines else ""


def bandwidth(results: Results) -> str:
    """What is written into given outputs, in Markdown: the memory's bandwidth that it uses, and that of the triad."""
    lines = ["| into a given output | time | GB/s | share of the triad's |", "|---|---|---|---|"]
    for row in measured_rows(results, Form.NEW):
        if TRIAD in row.measurements:
            ours = row.measurements[OURS]
            speed = f"{ours.gigabytes_per_second:.0f}"
            cells = [called(row), format_time(ours.median_s), speed, _compared(ours, row.measurements[TRIAD])]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def language_model(measured: dict[str, Any]) -> str:
    """What training the example's model takes with plain torch and with a library, in Markdown."""
    lines = ["| | tokens per second | over plain torch | peak memory of a step |", "|---|---|---|---|"]
    speeds, memory = measured["tokens_per_second"], measured["peak_mebibytes"]
    for name, speed in speeds.items():
        side, mode = name.split(", ")
        taken = f"{memory[side]:.0f} MiB" if mode == "eager" else "-"
        lines.append(f"| {name} | {speed:,.0f} | {speed / speeds[f'plain torch, {mode}']:.2f} | {taken} |")
    return "\n".join([*lines, "", _measured_on(measured["machine"]), ""])


def digits(measured: dict[str, Any]) -> str:
    """What an epoch of examples/digits.py takes with muladd, over the same with plain torch, in Markdown."""
    lines = ["| | over plain torch | standard error | processes | one model over the other |", "|---|---|---|---|---|"]
    for mode, of_mode in measured.items():
        if mode == "machine":
            continue
        apart = of_mode["one model over the other"]
        cells = [f"{of_mode['ratio']:.3f}", f"{of_mode['standard_error']:.3f}", str(of_mode["processes"])]
        lines.append(f"| {mode} | {' | '.join(cells)} | {apart['median']:.1%}, at most {apart['most']:.1%} |")
    return "\n".join([*lines, "", _measured_on(measured["machine"]), ""])


def definitions(measured: dict[str, Any]) -> str:
    """What a call costs of an operator that is defined in a notebook."""
    names = {
        "the function in NumPy alone": "numpy",
        "`opwheel.define`": "define",
        "`opwheel_tools.define_cpp`": "define_cpp",
        "`torch.library.custom_op`": "custom_op",
    }
    lines = ["| | forward | forward and backward |", "|---|---|---|"]
    for label, name in names.items():
        times = [measured[kind].get(name) for kind in ("call_us", "call_and_backward_us")]
        lines.append(f"| {label} | {' | '.join(format_time(one / 1e6) if one else '' for one in times)} |")
    return "\n".join([*lines, "", _measured_on(measured["machine"]), ""])


def draw(results: Results, kept: Results, path: Path) -> None:
    """Bars for each row: how many times faster than PyTorch, and in results of `kept` where allocators keep memory."""
    from matplotlib.figure import Figure

    chosen, with_allocators = rows(results), {row.name: row for row in kept.rows}
    series = {
        f"than {name}": [_ratio(row.measurements["muladd"], row.measurements[key]) for row in chosen.values()]
        for key, name in BASELINES.items()
    }
    series["than torch.addcmul with an allocator that keeps memory"] = [
        _over_kept_memory(with_allocators.get(row.name)) for row in chosen.values()
    ]
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(series)
    for number, (label, ratios) in enumerate(series.items()):
        at = [position + (number - (len(series) - 1) / 2) * height for position in range(len(chosen))]
        there = [(where, ratio) for where, ratio in zip(at, ratios, strict=True) if ratio is not None]
        colour = ("#c1272d", "#e8998d", "#7f7f7f")[number]
        bars = axes.barh(
            [where for where, _ in there], [ratio for _, ratio in there], height, label=label, color=colour
        )
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=7)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(chosen)), list(chosen))
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set(xlabel="times faster (left of the line: slower)", title="muladd on a CPU, float32 unless said")
    axes.legend()
    figure.savefig(path, dpi=110)


def _over_kept_memory(row: Row | None) -> float | None:
    theirs = None if row is None else _with_kept_memory(row)
    return None if row is None or theirs is None else _ratio(row.measurements["muladd"], theirs)


def tables() -> dict[str, str]:
    """The tables of the committed results, by what they are called in the pages."""
    results, another, transformer = (load(path) for path in (RESULTS, ANOTHER_MACHINE, TRANSFORMER_RESULTS))
    return {
        "parts": parts(results),
        "allocators": allocators(load(ALLOCATOR_RESULTS)),
        "summary": table(results),
        "calls": calls(results),
        "another machine": table(another),
        "another machine's calls": calls(another),
        "functional": functional(transformer),
        "operators": operators(transformer),
        "memory": memory(transformer),
        "bandwidth": bandwidth(transformer),
        "language model": language_model(json.loads(MODEL_RESULTS.read_text())),
        "digits": digits(json.loads(DIGITS_RESULTS.read_text())),
        "definitions": definitions(json.loads(DEFINE_RESULTS.read_text())),
        **speed(),
        **sweep(),
    }


def sweep() -> dict[str, str]:
    """The tables of `transformer_ops bench --sweep`; empty until there are results."""
    if not SWEEP_RESULTS.exists():
        return {"sweep": "", "sweep compiled": ""}
    results = sweep_results.load(SWEEP_RESULTS)
    files, about = "../benchmarks/results/transformer-sweep", "Times faster than PyTorch by width, dtype and layout"
    machine = _measured_on(results.machine)
    written = f"{machine} [All of it]({files}.json).\n\n![{about}, for each operator]({files}.png)\n"
    slower = f"{sweep_tables.slower(results)}\n{written}"
    return {"sweep": slower, "sweep compiled": sweep_tables.compiled(results)}


def speed() -> dict[str, str]:
    """The tables of `python -m benchmarks.gpu`; empty until there are results."""
    known = {
        "speed in training": gpu_tables.training,
        "speed in decoding": gpu_tables.decoding,
        "speed of muladd": gpu_tables.muladd,
    }
    if not SPEED_RESULTS.exists():
        return dict.fromkeys(known, "")
    results = gpu_document.load(SPEED_RESULTS)
    return {name: table(results) for name, table in known.items()}


def replaced(page: str) -> str:
    """The page with the tables of the committed results."""
    for name, text in tables().items():
        before, begin, rest = page.partition(f"<!-- {name}: benchmarks/summary.py writes this -->\n")
        if begin:
            after = rest.partition(END)[2]
            page = f"{before}{begin}{text}{END}{after}"
    return page


def _measured_on(machine: dict[str, Any]) -> str:
    return f"Measured on: {machine['cpu']}, {machine['cores']} cores; PyTorch {machine['torch']}."


def _compared(ours: Measurement, theirs: Measurement) -> str:
    """Their time over ours, and whether one of the two is noisy."""
    noisy = " noisy" if max(ours.spread, theirs.spread) > DISTURBED else ""
    return f"{_ratio(ours, theirs):.2f}{noisy}"


def _ratio(ours: Measurement, theirs: Measurement) -> float:
    return theirs.median_s / ours.median_s


if __name__ == "__main__":
    draw(load(RESULTS), load(ALLOCATOR_RESULTS), PICTURE)
    for path in PAGES:
        path.write_text(replaced(path.read_text()))
