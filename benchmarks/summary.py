"""The few rows of committed results that README and docs show, as a picture and as tables.

    python -m benchmarks.summary

draws benchmarks/results/summary.png and writes tables into docs/benchmarks.md: of cpu.json, and of torch_func.json what
the reference costs under torch.func. What is slower than PyTorch is there as well.
"""

from __future__ import annotations

from pathlib import Path

from opwheel.bench.from_samples import FUNCTIONAL, OURS, REFERENCE
from opwheel.bench.results import Measurement, Results, Row, load
from opwheel.bench.suite import OVERHEAD, Form
from opwheel.bench.tables import DISTURBED, format_elements, format_time

ROOT = Path(__file__).parent
RESULTS = ROOT / "results/cpu.json"
FUNCTIONAL_RESULTS = ROOT / "results/torch_func.json"
PICTURE = ROOT / "results/summary.png"
PAGE = ROOT.parent / "docs/benchmarks.md"
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
    ("forward, inputs require gradients", "forward", "muladd", "addcmul"),
    ("forward and backward", "forward+backward", "muladd", "addcmul"),
    ("`out=`", "out", "muladd", "addcmul"),
    ("in place, over `mul_`, which computes less", "in-place", "muladd", "mul_"),
    ("in `torch.compile`, no_grad", "no_grad", "muladd in compile", "compile"),
)
PEERS = {"eager": "a * b + c", "addcmul": "torch.addcmul"}


def rows(results: Results) -> dict[str, Row]:
    """The rows of the summary by what they are called."""
    named = {row.name: row for row in results.rows}
    return {label: named[name] for label, name in ROWS.items()}


def table(results: Results) -> str:
    """The rows in Markdown: muladd's time, and the times of others over it."""
    lines = [f"| float32 unless said | muladd | {' | '.join(PEERS.values())} |", "|---|---|---|---|"]
    for label, row in rows(results).items():
        ours = row.peers["muladd"]
        cells = [label, format_time(ours.median_s), *(f"{_ratio(ours, row.peers[name]):.2f}" for name in PEERS)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", measured_on(results), ""])


def measured_on(results: Results) -> str:
    """Machine and settings, in a sentence."""
    machine, settings = results.machine, results.settings
    described = f"{machine['cpu']}, {settings['threads']} threads, {machine['capability']}, torch {machine['torch']}"
    pages = f", huge pages: {machine['huge_pages']}" if "huge_pages" in machine else ""
    label = f", {settings['label']}" if "label" in settings else ""
    return f"Measured on: {described}{pages}{label}."


def calls(results: Results) -> str:
    """What a call costs, in Markdown; a dash where the results have no such measurement."""
    forms = {row.form: row.peers for row in results.rows if row.group == OVERHEAD}
    lines = ["| a call on 4 elements | time | over | ratio |", "|---|---|---|---|"]
    for label, form, name, over in CALLS:
        peers = forms.get(form, {})
        measured = name in peers and over in peers
        cells = [format_time(peers[name].median_s), f"{1 / _ratio(peers[name], peers[over]):.2f}"] if measured else "--"
        lines.append(f"| {label} | {cells[0]} | `{over}` | {cells[1]} |")
    return "\n".join([*lines, ""])


def functional(results: Results) -> str:
    """Forward and backward of operators, and the same under torch.func, in Markdown."""
    lines = [
        "| forward and backward | operator | under torch.func | ratio | reference |",
        "|---|---|---|---|---|",
    ]
    for row in results.rows:
        if row.form != Form.BACKWARD.value:
            continue
        ours, other, reference = (row.peers[name] for name in (OURS, FUNCTIONAL, REFERENCE))
        noisy = ", noisy" * (max(ours.spread, other.spread) > DISTURBED)
        times = [format_time(ours.median_s), format_time(other.median_s), f"{_ratio(ours, other):.1f}{noisy}"]
        call = f"`{row.group}`, {format_elements(row.elements)} elements, {row.dtype}"
        lines.append(f"| {call} | {' | '.join(times)} | {format_time(reference.median_s)} |")
    return "\n".join([*lines, "", measured_on(results), ""])


def draw(results: Results, path: Path) -> None:
    """Bars for each row: how many times faster than PyTorch."""
    from matplotlib.figure import Figure

    chosen = rows(results)
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(PEERS)
    for number, (peer, name) in enumerate(PEERS.items()):
        ratios = [_ratio(row.peers["muladd"], row.peers[peer]) for row in chosen.values()]
        at = [position + (number - (len(PEERS) - 1) / 2) * height for position in range(len(chosen))]
        bars = axes.barh(at, ratios, height, label=f"than {name}", color=("#c1272d", "#e8998d")[number])
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(chosen)), list(chosen))
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set(xlabel="times faster (left of the line: slower)", title="muladd on a CPU, float32 unless said")
    axes.legend()
    figure.savefig(path, dpi=110)


def replaced(page: str, results: Results, under_torch_func: Results) -> str:
    """The page with the tables of these results."""
    tables = {"summary": table(results), "calls": calls(results), "functional": functional(under_torch_func)}
    for name, text in tables.items():
        before, begin, rest = page.partition(f"<!-- {name}: benchmarks/summary.py writes this -->\n")
        _, end, after = rest.partition(END)
        page = f"{before}{begin}{text}{end}{after}"
    return page


def _ratio(ours: Measurement, theirs: Measurement) -> float:
    return theirs.median_s / ours.median_s


if __name__ == "__main__":
    measured = load(RESULTS)
    draw(measured, PICTURE)
    PAGE.write_text(replaced(PAGE.read_text(), measured, load(FUNCTIONAL_RESULTS)))
