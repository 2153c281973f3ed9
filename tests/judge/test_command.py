"""``opwheel judge``, in processes of its own: what it prints, exit codes, reproductions."""

import json
import os
import signal
import subprocess
import sys

import pytest
from opwheel_tools.judge import reproduction

from . import planted
from .planted import HERE

ROOT = HERE.parents[1]
REFERENCES = "tests/judge/references.py"


def opwheel_judge(*options):
    command = [sys.executable, "-m", "opwheel", "judge", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def options(name, reference=None):
    return "--reference", f"{REFERENCES}:{reference or name}", "--inputs", f"{REFERENCES}:{name}_inputs"


def planted_file(folder, name):
    (defect,) = [one for one in planted.DEFECTS if one.name == name]
    file = folder / "candidates.py"
    file.write_text(planted.text_of(defect))
    return f"{file}:{defect.candidate}", defect.candidate


@pytest.mark.slow
def test_a_finding_has_a_script_that_shows_it(tmp_path):
    candidate, function = planted_file(tmp_path, "a_block_and_no_more")
    done = opwheel_judge(candidate, *options(function), "--json", tmp_path / "verdict.json")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"WRONG: {candidate}: ")
    assert done.stderr.startswith(f"judging {candidate}\n")
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert not verdict["is_right"]
    for finding in verdict["findings"]:
        text = finding["reproduction"]
        assert text in "\n".join(line.removeprefix("    ") for line in done.stdout.splitlines()) + "\n"
        assert 5 < len(text.splitlines()) <= reproduction.LINES
        assert "opwheel" not in text
        shown = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
        assert "AssertionError" in shown.stderr


@pytest.mark.slow
def test_a_candidate_that_ends_its_process_is_found_and_the_rest_is_tried(tmp_path):
    file = tmp_path / "ends.py"
    file.write_text(
        "import os\ndef clamp_into(x, low):\n    os._exit(3) if x.numel() == 0 or x.shape == (2, 3, 5, 7) else None\n"
        "    return x.clamp(low)\n"
    )
    done = opwheel_judge(f"{file}:clamp_into", *options("clamp_into"))
    assert done.returncode == 1, done.stderr
    assert "ends or hangs its process" in done.stdout
    assert "size 4 is 0" in done.stdout
    assert "note: it does not check shapes" in done.stdout


def stopped(candidate, function, said):
    """Exit code and output of a command that gets Ctrl-C when it says something."""
    command = [sys.executable, "-m", "opwheel", "judge", candidate, *options(function)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    for line in process.stderr:
        if line.startswith(said):
            os.killpg(process.pid, signal.SIGINT)
            break
    printed, _ = process.communicate()
    return process.returncode, printed


@pytest.mark.slow
def test_after_ctrl_c_there_is_what_was_found_with_its_script(tmp_path):
    code, printed = stopped(*planted_file(tmp_path, "zeros"), "WRONG on the given calls: ")
    assert code == 1
    assert "stopped before the end" in printed
    assert "    torch.testing.assert_close(got, want)" in printed


@pytest.mark.slow
def test_ctrl_c_before_anything_was_found_is_exit_code_130():
    code, printed = stopped("tests/judge/candidates.py:softmax", "softmax", "right on the given calls ")
    assert code == 130
    assert printed.startswith("nothing found: tests/judge/candidates.py:softmax: ")
    assert "stopped before the end" in printed


@pytest.mark.slow
def test_wrong_usage_is_one_sentence():
    done = opwheel_judge("missing.py:f", *options("softmax"))
    assert done.returncode == 2
    assert "there is no file missing.py" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
