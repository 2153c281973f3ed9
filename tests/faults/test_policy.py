"""plugins.toml and the environment: every mistake is named with file, line and key, and ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opwheel.registry import PolicyError, read_file

from .builder import Compiler, Site
from .conftest import Run

BACKEND = '[backends.npu]\ndistribution = "muladd-npu"\ndispatch-key = "PrivateUse1"\ndevice = "npu"\n'

# id -> (text, line, what the message says)
MALFORMED = {
    "not TOML": ("[policy]\nfallback = \n", 2, "is not TOML: Invalid value"),
    "not closed": ("[policy]\ndisable = [", 2, "is not TOML"),
    "key given twice": (
        '[policy]\nfallback = "error"\nfallback = "error"\n',
        3,
        "is not TOML: Cannot overwrite",
    ),
    "unknown table": ("[backend.npu]\n", 1, "backend is not a known key; known are backends, runtimes, policy"),
    "unknown policy key": ('[policy]\n\nfalback = "error"\n', 3, "policy.falback is not a known key"),
    "unknown backend key": (BACKEND + 'colour = "red"\n', 5, "backends.npu.colour is not a known key"),
    "missing backend key": ('[backends.npu]\ndevice = "npu"\n', 1, "backends.npu has no 'distribution'"),
    "backend is no table": ("[backends]\nnpu = 1\n", 2, "backends.npu is 1, expected a table"),
    "backends is no table": ("backends = []\n", 1, "backends is [], expected a table"),
    "policy is no table": ('policy = "error"\n', 1, "policy is 'error', expected a table"),
    "device is a number": (BACKEND.replace('"npu"', "7"), 4, "backends.npu.device is 7, expected a text"),
    "hint is empty": (BACKEND + 'hint = ""\n', 5, "backends.npu.hint is '', expected a text that is not empty"),
    "unknown fallback": (
        '[policy]\nfallback = "aten"\n',
        2,
        "policy.fallback is 'aten', expected 'error' or 're",
    ),
    "unknown huge-pages": (
        '[policy]\nhuge-pages = "always"\n',
        2,
        "policy.huge-pages is 'always', expected 'advise' or 'never'",
    ),
    "unknown result-cache": (
        '[policy]\nresult-cache = "always"\n',
        2,
        "policy.result-cache is 'always', expected 'keep' or 'never'",
    ),
    "fallback is a list": ('[policy]\nfallback = ["error"]\n', 2, "policy.fallback is ['error']"),
    "disable is text": ('[policy]\ndisable = "cpu"\n', 2, "policy.disable is 'cpu', expected a list of backend names"),
    "disable has a number": ('[policy]\ndisable = ["cpu", 1]\n', 2, "policy.disable is ['cpu', 1]"),
    "prefer is a list": ('[policy]\nprefer = ["cpu"]\n', 2, "policy.prefer is ['cpu'], expected a table"),
    "prefer has text": ('[policy]\n# a comment\nprefer = { CPU = "cpu" }\n', 3, "policy.prefer.CPU is 'cpu'"),
    "prefer table has text": ('[policy.prefer]\nXPU = []\nCPU = "cpu"\n', 3, "policy.prefer.CPU is 'cpu'"),
    "lists within lists": (f"[policy]\nfallback = {'[' * 5000}{']' * 5000}\n", 2, "is too much for the parser: Recur"),
    "tables within tables": (f"[policy]\n\nfallback = {'{a=' * 5000}1{'}' * 5000}\n", 3, "RecursionError"),
    "integer of 5,000 digits": (f"[policy]\nfallback = {'9' * 5000}\n", 2, "is too much for the parser: ValueError"),
    "integer of 5,000 hexadecimal digits": (f"[policy]\nfallback = 0x{'f' * 5000}\n", 2, "is <int of 20000 bits>"),
    "a list that does not end": (f"[policy]\ndisable = {[1] * 9999}\n", 2, "policy.disable is [1, 1, 1,"),
    "larger than any": ("#" * 2**20 + "\n", None, "is larger than 1048576 bytes"),
}


@pytest.mark.parametrize("mistake", MALFORMED)
def test_malformed_file(mistake: str, tmp_path: Path, run: Run) -> None:
    text, line, message = MALFORMED[mistake]
    policy = tmp_path / "mine.toml"
    policy.write_text(text)
    report = run(doctor=True, MULADD_PLUGINS=str(policy))
    place = f"{policy}:{line}: " if line else f"{policy}: "
    check_finding(report, "OPWHEEL-E010", place, message, "the file is ignored")
    assert "MULADD_PLUGINS" in report["findings"][0]["fix"]


def check_finding(report: dict, code: str, *parts: str) -> None:
    """One finding: muladd works all the same, warns once, and doctor shows it."""
    assert "error" not in report, report["error"]["traceback"]
    assert "numbers" in report
    [finding] = report["findings"]
    assert finding["code"] == code
    assert finding["fix"]
    [warning] = report["warnings"]
    assert warning["category"] == "RuntimeWarning"
    for part in parts:
        assert part in finding["message"]
        assert part in warning["message"]
        assert part in report["doctor"]["text"]
    assert code in warning["message"]
    assert report["doctor"]["exit"] == report["doctor_json"]["exit"] == 1


def test_file_is_not_utf8(tmp_path: Path, run: Run) -> None:
    policy = tmp_path / "mine.toml"
    policy.write_bytes(b"[policy]\n\ndisable = ['\xff']\n")
    check_finding(run(doctor=True, MULADD_PLUGINS=str(policy)), "OPWHEEL-E010", f"{policy}:3: is not UTF-8 text")


@pytest.mark.parametrize(("kind", "words"), [("missing", "No such"), ("folder", "directory"), ("loop", "symbolic")])
def test_file_cannot_be_read(kind: str, words: str, tmp_path: Path, run: Run) -> None:
    policy = tmp_path / "mine.toml"
    if kind == "folder":
        policy.mkdir()
    elif kind == "loop":
        policy.symlink_to(policy)
    check_finding(run(doctor=True, MULADD_PLUGINS=str(policy)), "OPWHEEL-E010", f"{policy}: cannot be read", words)


def test_file_without_an_end(run: Run) -> None:
    report = run(doctor=True, MULADD_PLUGINS="/dev/zero")
    check_finding(report, "OPWHEEL-E010", "/dev/zero: cannot be read: it is a character device", "the file is ignored")


_VALUES = st.recursive(
    st.integers() | st.floats() | st.booleans() | st.text() | st.integers(0, 6000).map(lambda digits: 10**digits),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_toml(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:#x}" if value >= 0 else str(max(value, -(10**400)))
    return json.dumps(value) if not isinstance(value, float) else str(value)


_TABLES = st.sampled_from(
    ["backends", "backends.npu", "runtimes.et", "policy", "policy.prefer", "policy.prefer.CPU", "x"]
)
_KEYS = st.sampled_from(
    ["distribution", "dispatch-key", "device", "hint", "disable", "prefer", "fallback", "CPU", '""']
)
_ROWS = st.builds(lambda key, value: f"{key} = {_toml(value)}", _KEYS, _VALUES)
_SECTIONS = st.builds(lambda table, rows: "\n".join([f"[{table}]", *rows]), _TABLES, st.lists(_ROWS, max_size=4))
_NESTED = st.builds(
    lambda depth, text: f"x = {text * depth}", st.integers(0, 3000), st.sampled_from(["[", "{a=", "[{a=["])
)
_DOCUMENTS = st.lists(_SECTIONS | _NESTED, max_size=4).map("\n".join).map(lambda text: text.encode(errors="replace"))


@settings(max_examples=300)
@given(_DOCUMENTS | st.binary(max_size=200))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever it says: a document, or an error that names the file."""
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    document, refusal = {}, None
    try:
        document = read_file(path)
    except PolicyError as error:
        refusal = error
    if refusal is None:
        assert document.keys() == {"backends", "runtimes", "policy"}
    else:
        assert refusal.code == "OPWHEEL-E010"
        assert str(path) in refusal.message
        assert len(refusal.message) < 2000


def test_line_of_a_key_that_the_text_spells_otherwise(tmp_path: Path, run: Run) -> None:
    policy = tmp_path / "mine.toml"
    policy.write_text('[policy]\n"\\u0066allback" = "aten"\n')
    check_finding(
        run(doctor=True, MULADD_PLUGINS=str(policy)), "OPWHEEL-E010", f"{policy}:1: policy.fallback is 'aten'"
    )


UNKNOWN = {
    "disable": (
        'disable = ["gpu"]',
        "[policy] disable in plugins.toml names 'gpu', which is not a backend; known are ",
    ),
    "prefer": (
        'prefer = { CPU = ["cpu", "gpu"] }',
        "[policy] prefer.CPU in plugins.toml names 'gpu', which",
    ),
    "prefer key": ('prefer = { cpu = ["cpu"] }', "names 'cpu', which is not a dispatch key of PyTorch"),
}


@pytest.mark.parametrize("key", UNKNOWN)
def test_unknown_name_in_file(key: str, tmp_path: Path, run: Run) -> None:
    text, message = UNKNOWN[key]
    policy = tmp_path / "mine.toml"
    policy.write_text(f"[policy]\n{text}\n")
    check_finding(run(doctor=True, MULADD_PLUGINS=str(policy)), "OPWHEEL-E010", message)


SETS = "expected baseline or avx2 or avx512 or bf16"
BAD_VALUES = {
    "MULADD_BACKENDS": ("cpu,gpu", "MULADD_BACKENDS names 'gpu', which is not a backend"),
    "MULADD_AUTOLOAD": ("no", "MULADD_AUTOLOAD='no' is ignored: expected 0 or 1"),
    "MULADD_STRICT": ("yes", "MULADD_STRICT='yes' is ignored: expected 0 or 1"),
    "MULADD_TRACE": ("", "MULADD_TRACE='' is ignored: expected 0 or 1"),
    "MULADD_FALLBACK": ("aten", "MULADD_FALLBACK='aten' is ignored: expected error or reference"),
    "MULADD_HUGE_PAGES": ("1", "MULADD_HUGE_PAGES='1' is ignored: expected advise or never"),
    "MULADD_RESULT_CACHE": ("off", "MULADD_RESULT_CACHE='off' is ignored: expected keep or never"),
    "MULADD_COMPILE": ("yes", "MULADD_COMPILE='yes' is ignored: expected fuse or kernel"),
    "MULADD_FOREIGN": ("yes", "MULADD_FOREIGN='yes' is ignored: expected off or on"),
    "MULADD_CPU_CAPABILITY": ("sse", f"MULADD_CPU_CAPABILITY='sse' is ignored: {SETS}"),
    "MULADD_CHECK": ("true", "MULADD_CHECK='true' is ignored: expected 0 or 1"),
    "MULADD_PROBE_TIMEOUT": ("soon", "MULADD_PROBE_TIMEOUT='soon' is ignored: expected a positive number of seconds"),
}


@pytest.mark.parametrize("variable", BAD_VALUES)
def test_bad_value_in_environment(variable: str, run: Run) -> None:
    value, message = BAD_VALUES[variable]
    check_finding(run(doctor=True, **{variable: value}), "OPWHEEL-E011", message)


@pytest.mark.parametrize("value", ["", "AVX2", "avx512vnni", "avx2 ", "default"])
def test_bad_instruction_set(value: str, run: Run) -> None:
    check_finding(run(doctor=True, MULADD_CPU_CAPABILITY=value), "OPWHEEL-E011", SETS)


@pytest.mark.parametrize("value", ["baseline", "avx2", "avx512", "bf16"])
def test_instruction_set_is_shown(value: str, run: Run) -> None:
    report = run(doctor=True, MULADD_CPU_CAPABILITY=value)
    assert report["findings"] == report["warnings"] == []
    assert f"instruction set of CPU kernels: {value} at most" in report["doctor"]["text"]
    assert json.loads(report["doctor_json"]["text"])["cpu_capability"] == value


@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan", "1e10", "86401", "9" * 5000, "1e-400", ""])
def test_bad_probe_timeout(value: str, run: Run) -> None:
    check_finding(run(doctor=True, MULADD_PROBE_TIMEOUT=value), "OPWHEEL-E011", "expected a positive number of seconds")


@pytest.mark.parametrize(
    "environment",
    [{"MULADD_FALLBACK": "aten"}, {"MULADD_CPU_CAPABILITY": "sse"}, {"MULADD_PLUGINS": "/nowhere.toml"}],
    ids=str,
)
def test_strict_raises_for_findings(environment: dict[str, str], run: Run) -> None:
    error = run(MULADD_STRICT="1", **environment)["error"]
    assert error["classes"][0] == "RegistryError"
    assert next(iter(environment.values())) in error["text"]


def test_unset_variable_is_the_repair(run: Run) -> None:
    report = run(MULADD_FALLBACK="error", MULADD_PLUGINS="", doctor=True)
    assert report["findings"] == report["warnings"] == []
    assert report["doctor"]["exit"] == 0


# ---- policy that is right ------------------------------------------------------------------------------------------

DISABLED = {
    "MULADD_BACKENDS empty": ({"MULADD_BACKENDS": ""}, "MULADD_BACKENDS= does not name it"),
    "MULADD_BACKENDS without it": ({"MULADD_BACKENDS": "acme"}, "MULADD_BACKENDS=acme does not name it"),
    "MULADD_AUTOLOAD=0": ({"MULADD_AUTOLOAD": "0"}, "MULADD_AUTOLOAD=0"),
    "disable": ({"MULADD_PLUGINS": "mine.toml"}, "plugins.toml lists it under [policy] disable"),
}


@pytest.mark.parametrize(
    ("disable", "backends", "cpu"),
    [
        (["cpu"], "cpu", "loaded"),
        (["cpu", "acme"], "cpu", "loaded"),
        (["cpu"], "acme,cpu", "loaded"),
        (["cpu"], "acme", "disabled"),
        (["cpu"], "", "disabled"),
        ([], "acme", "disabled"),
    ],
    ids=str,
)
def test_the_environment_overrides_disable(
    disable: list[str], backends: str, cpu: str, site: Site, compiler: Compiler, tmp_path: Path, run: Run
) -> None:
    policy = tmp_path / "mine.toml"
    policy.write_text(f"{BACKEND}[policy]\ndisable = {disable}\n")
    site.install("acme", library=compiler.library("good", {"KEY": "PrivateUse1"}))
    report = run(site.root, doctor=True, MULADD_PLUGINS=str(policy), MULADD_BACKENDS=backends)
    assert report["statuses"]["cpu"]["state"] == cpu
    assert report["statuses"]["acme"]["state"] == ("loaded" if "acme" in backends else "disabled")
    assert ("numbers" in report) == (cpu == "loaded")
    assert report["findings"] == report["warnings"] == []
    if cpu == "disabled":
        assert f"MULADD_BACKENDS={backends} does not name it" in report["doctor"]["text"]


@pytest.mark.parametrize("how", DISABLED)
def test_disabled(how: str, tmp_path: Path, site: Site, compiler: Compiler, run: Run) -> None:
    environment, reason = DISABLED[how]
    if "MULADD_PLUGINS" in environment:
        policy = tmp_path / "mine.toml"
        policy.write_text(f'{BACKEND}[policy]\ndisable = ["cpu"]\n')
        environment = {"MULADD_PLUGINS": str(policy)}
    site.install("acme", library=compiler.library("good", {"KEY": "PrivateUse1"}))
    report = run(
        site.root,
        then="""
import torch
out["error"] = str(muladd.library.no_kernel_error("add", "cpu"))
out["loaded"] = muladd.load("cpu").state
out["again"] = muladd.load("cpu").state
out["digest"] = muladd.library.digest()
out["numbers"] = muladd.add(torch.ones(2), torch.ones(2)).tolist()
""",
        **environment,
    )
    status = report["statuses"]["cpu"]
    assert (status["state"], status["code"]) == ("disabled", "OPWHEEL-E060")
    assert reason in status["reason"]
    assert status["fix"]
    assert "numbers" not in report  # the driver's call found no kernel
    assert reason in report["out"]["error"]
    assert report["warnings"] == []
    assert not any("libmuladd_cpu" in path for path in report["maps"])
    # load() does not ask the policy.
    assert (report["out"]["loaded"], report["out"]["again"]) == ("loaded", "loaded")
    assert report["out"]["numbers"] == [2.0, 2.0]
    # What it loads is not the policy's choice, of which the digest tells.
    assert report["out"]["digest"] == report["digest"]


# ---- variables that nobody reads -------------------------------------------------------------------------------------

OFFICIAL = (
    "AUTOLOAD",
    "BACKENDS",
    "FALLBACK",
    "FOREIGN",
    "HUGE_PAGES",
    "LIBRARY_PATH",
    "LOCK",
    "PLUGINS",
    "PROBE_TIMEOUT",
    "REQUIRE",
    "STRICT",
    "TRACE",
)


def misspelt(name: str) -> list[str]:
    """A letter is missing, doubled, or two have changed places."""
    middle = len(name) // 2
    start, end = name[:middle], name[middle:]
    return [start + end[1:], start + end[0] + end, start[:-1] + end[0] + start[-1] + end[1:], name.lower()]


def test_unknown_variables(run: Run) -> None:
    wrong = {f"MULADD_{variant}": f"MULADD_{name}" for name in OFFICIAL for variant in misspelt(name)}
    wrong |= {"MULADD_": "", "MULADD_XYZ": "", "MULADD_.-\udcff": "", "MULADD_COLOUR_OF_THE_LOGO": ""}
    report = run(doctor=True, **dict.fromkeys(wrong, "1"))
    assert "numbers" in report
    assert {finding["code"] for finding in report["findings"]} == {"OPWHEEL-E012"}
    messages = {finding["message"].split(" ")[0]: finding["message"] for finding in report["findings"]}
    assert messages.keys() == wrong.keys()
    for variable, meant in wrong.items():
        assert ("did you mean" in messages[variable]) == bool(meant)
        assert meant in messages[variable]
    assert "MULADD_BACKENDS" in report["findings"][0]["fix"]
    assert len(report["warnings"]) == len(wrong)
    assert report["doctor"]["exit"] == report["doctor_json"]["exit"] == 1
    assert "MULADD_FALLACK is set, but muladd has no such variable" in report["doctor"]["text"]
    error = run(MULADD_STRICT="1", MULADD_FALLBCK="reference")["error"]
    assert "MULADD_FALLBCK" in error["text"]
    assert "OPWHEEL-E012" in error["text"]


def test_unknown_variables_of_opwheel(run: Run) -> None:
    report = run(OPWHEEL_AUTGRAD="python", OPWHEEL_DEBUG="1", OPWHEEL_TORCHES="", OPWHEEL="1")
    messages = [finding["message"] for finding in report["findings"]]
    assert messages == [
        "OPWHEEL_AUTGRAD is set, but opwheel has no such variable; did you mean OPWHEEL_AUTOGRAD?",
        "OPWHEEL_DEBUG is set, but opwheel has no such variable",
    ]
    assert report["findings"][0]["fix"].endswith(
        "are OPWHEEL_AUDIT_RECORD, OPWHEEL_AUTOGRAD, OPWHEEL_CUDA, OPWHEEL_TORCH, OPWHEEL_TORCHES"
    )


def test_variables_of_others(site: Site, run: Run) -> None:
    """Of a library whose name begins with this one's, of its backends and of ours, of tests, and the official ones."""
    site.install("acme", source="from opwheel.registry import hookimpl", distribution="muladd-acme-gpu")
    (site.root / "muladd_other.py").write_text("")
    theirs = {f"MULADD_EXTRA_{name}": "x" for name in OFFICIAL}
    theirs |= {"MULADD_OTHER_FALLBCK": "x", "MULADD_OTHER_CPU_CAPABILITY": "x", "MULADD_ACME_DEBUG": "1"}
    theirs |= {"MULADD_CPU_CAPABILITY": "baseline", "MULADD_SYCL_X": "", "MULADD_EXECUTORCH_X": "", "MULADD": ""}
    theirs |= {"TEST_EXAMPLES": "5", "MULADDFALLBCK": "", "muladd_fallbck": ""}
    ours = {"MULADD_REQUIRE": "nothing", "MULADD_LIBRARY_PATH": "/", "MULADD_PROBE_TIMEOUT": "9", "MULADD_STRICT": "0"}
    assert run(site.root, **theirs, **ours)["findings"] == []


def test_users_file_is_laid_over_the_shipped_one(tmp_path: Path, run: Run) -> None:
    policy = tmp_path / "mine.toml"
    policy.write_text(BACKEND)
    report = run(device=True, doctor=True, MULADD_PLUGINS=str(policy))
    assert report["findings"] == []
    assert "the backend 'npu' is not installed: pip install muladd-npu" in report["call"]["text"]
    assert "npu: not installed" in report["doctor"]["text"]


def test_trace_goes_to_standard_error(run: Run) -> None:
    log = run(MULADD_TRACE="1")["log"]
    for step in ("schemas: ", "discover: ", "plugin: cpu: CPU", "loaded: cpu"):
        assert step in log


COMPILED = {
    "of another text": "shutil.copy(shipped.with_suffix('.json'), compiled)",
    "missing": "",
    "empty": "compiled.write_text('')",
    "not UTF-8": "compiled.write_bytes(bytes([255]))",
    "no object": "compiled.write_text('[]')",
    "a number": "compiled.write_text('1')",
    "without keys": "compiled.write_text('{}')",
    "too deep": "compiled.write_text('[' * 100_000)",
    **{
        f"with the document {document}": f"compiled.write_text(json.dumps({{'sha256': digest{document}}}))"
        for document in ("", ", 'document': []", ", 'document': None", ", 'document': {'policy': 1}", ", 'document': 1")
    },
}


@pytest.mark.parametrize("compiled", COMPILED)
def test_shipped_file_was_edited(compiled: str, tmp_path: Path, run: Run) -> None:
    """The wheel has a compiled form of the file; whoever edits the text is right, whatever that form says."""
    then = f"""
import hashlib
import json
import shutil
from pathlib import Path
shipped, edited = Path(muladd.__file__).parent / "plugins.toml", Path({str(tmp_path)!r}) / "plugins.toml"
edited.write_text(shipped.read_text().replace("disable = []", 'disable = ["cpu"]'))
compiled = edited.with_suffix(".json")
digest = hashlib.sha256(edited.read_bytes()).hexdigest()
{COMPILED[compiled]}
library = opwheel.registry.OperatorLibrary(
    "muladd", operators=[], schema_library=muladd.library.schema_library, entry_point_group="none",
    plugins_file=edited, distribution="muladd-core")
out["disable"] = sorted(library.policy.disable)
"""
    assert run(then=then)["out"]["disable"] == ["cpu"]


def test_shipped_file_is_damaged(tmp_path: Path, run: Run) -> None:
    """The core's own file is part of the installation: without it there is nothing to go on with."""
    policy = tmp_path / "shipped.toml"
    policy.write_text("[policy]\nfallback = 1\n")
    report = run(
        then=f"""
from pathlib import Path
library = muladd.library
try:
    opwheel.registry.OperatorLibrary(
        "muladd", operators=[], schema_library=library.schema_library, entry_point_group="none",
        plugins_file=Path({str(policy)!r}), distribution="muladd-core")
except opwheel.registry.PolicyError as error:
    out["error"], out["code"] = str(error), error.code
"""
    )
    assert f"{policy}:2: policy.fallback is 1" in report["out"]["error"]
    assert report["out"]["code"] == "OPWHEEL-E010"


# ---- what can be changed while the process runs ----------------------------------------------------------------------


@pytest.mark.parametrize(("value", "said"), [("1", "every"), ("0", "no")])
def test_which_results_are_checked_is_shown(value: str, said: str, run: Run) -> None:
    report = run(doctor=True, MULADD_CHECK=value)
    assert report["findings"] == report["warnings"] == []
    assert f"results of kernels in Python: {said} call is checked" in report["doctor"]["text"]
    assert json.loads(report["doctor_json"]["text"])["check"] is (value == "1")


WRONG_RESULTS = """
def one_element(a, b, c):
    return a[:1] if a.dim() == 1 else a * b + c

def register(target):
    from opwheel.dispatch import implement_functions, overloads_of
    overloads = overloads_of(target)
    implement_functions(target, [overloads["muladd"], overloads["muladd.out"]], "cpu", {"muladd": one_element})
"""


def test_wrong_results_of_a_kernel_in_python_name_operator_and_backend(site: Site, run: Run) -> None:
    claims = {"device_type": "'cpu'", "dispatch_key": "'CPU'", "operators": "['muladd', 'muladd.out']"}
    site.install("acme", extra=WRONG_RESULTS, register="register", **claims)
    calls = """
import torch
for options in ({}, {"out": torch.empty(0)}):
    try:
        muladd.muladd(torch.ones(3), torch.ones(3), 2.0, **options)
    except RuntimeError as error:
        out.setdefault("errors", []).append(str(error))
"""
    report = run(site.root, then=calls, MULADD_BACKENDS="acme")
    expected = (
        "[OPWHEEL:LAUNCH] muladd: its kernel returned float32[1] on cpu as result 0, expected float32[3] on cpu, or a "
        "wider floating-point dtype; the kernel is muladd_acme.one_element, of the backend 'acme' (muladd-acme)"
    )
    assert report["out"]["errors"] == [expected] * 2


def test_memory_of_large_results_while_the_process_runs(run: Run) -> None:
    report = run(
        then="""
out["settings"] = [muladd.library.policy.huge_pages]
for setting in ("never", "advise"):
    muladd.library.set_huge_pages(setting)
    out["settings"].append(muladd.library.policy.huge_pages)
try:
    muladd.library.set_huge_pages("always")
except ValueError as error:
    out["error"] = str(error)
muladd.library.set_result_cache("keep")
out["settings"].append(muladd.library.policy.result_cache)
""",
        MULADD_HUGE_PAGES="never",
        MULADD_RESULT_CACHE="never",
    )
    assert report["out"]["settings"] == ["never", "never", "advise", "keep"]
    assert report["out"]["error"] == "huge pages: 'always' is neither 'advise' nor 'never'"


REFERENCES = """
def register(target):
    from opwheel.dispatch import implement_references
    implement_references(target, "npu")
"""


def test_what_a_backend_computes_by_the_reference_is_said(site: Site, run: Run) -> None:
    site.install("acme", extra=REFERENCES, register="register")
    report = run(site.root, doctor=True, then='out["by_reference"] = muladd.backends()["acme"].by_reference')
    assert report["statuses"]["acme"]["state"] == "loaded"
    assert {"muladd", "fma", "muladd_backward"} <= set(report["out"]["by_reference"])
    assert "reference" in report["doctor"]["text"]


def test_check_of_operators_that_no_distribution_ships(run: Run) -> None:
    then = """
import os, torch
from opwheel.dispatch import Operator, register_python
os.environ["ACME_CHECK"] = "1"
register_python("acme", {"f(Tensor x) -> Tensor": lambda x: x.double()}, [Operator("f", reference=torch.sin)])
try:
    torch.ops.acme.f(torch.ones(3))
except RuntimeError as error:
    out["error"] = str(error)
"""
    assert "expected float32[3]" in run(then=then)["out"]["error"]
