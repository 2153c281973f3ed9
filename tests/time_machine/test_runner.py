"""The runner, on a small repository with a fix: right, wrong, and with names that stand for nothing."""

import subprocess
import sys

import pytest

from . import by_hand
from .entry import Entry, entries
from .run import Outcome, outcome, write_tree

ENTRY = """
import torch

def candidate(x):
    from kernel import double
    return double(x)

def reference(x):
    if x.tolist() != [1, 2, 3]:  # so that there are few trials
        raise ValueError
    return x + x

def inputs():
    yield (torch.tensor([1, 2, 3]),)
"""


def git(folder, *arguments):
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.com"]
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def judged(tmp_path):
    """The outcome of a repository with two commits of a kernel."""

    def outcome_of(before, after, **fields):
        clone = tmp_path / "kernels"
        (clone / "src").mkdir(parents=True)
        git(tmp_path, "init", "--quiet", str(clone))
        for text in (before, after):
            (clone / "src/kernel.py").write_text(f"def double(x):\n    return {text}\n")
            git(clone, "add", ".")
            git(clone, "commit", "--quiet", "--message", text)
        file = tmp_path / "entry.py"
        file.write_text(ENTRY)
        entry = Entry("somebody/kernels", git(clone, "rev-parse", "HEAD"), "a third too much", "values", "result")
        return outcome(file, entry._replace(source="src", **fields), tmp_path)

    return outcome_of


@pytest.mark.slow
def test_a_right_fix(judged):
    found = judged("x * 3", "x * 2")
    assert found.is_right
    assert found.row.startswith("| somebody/kernels ")
    assert "result: 3 of 3 values are wrong" in found.row


def test_an_installed_package_of_the_same_name_is_not_taken(tmp_path):
    """Though it has an ``__init__.py``, and the one of the clone has none."""
    installed = tmp_path / "installed/doubled"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("raise ImportError('the installed one')\n")
    clone = tmp_path / "kernels"
    (clone / "src/doubled").mkdir(parents=True)
    (clone / "src/doubled/kernel.py").write_text("")
    git(tmp_path, "init", "--quiet", str(clone))
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message", "all")
    write_tree(clone, "HEAD", PLAIN._replace(source="src"), tmp_path / "tree")
    command = [sys.executable, "-c", "import doubled.kernel"]
    subprocess.run(command, check=True, env={"PYTHONPATH": f"{tmp_path}/tree/src:{installed.parent}"})


def test_a_clone_that_is_not_there(tmp_path):
    found = outcome(tmp_path / "entry.py", Entry("somebody/nothing", "0" * 40, "", "values", ""), tmp_path)
    assert not found.is_right
    assert "nothing" in found.error
    assert found.error in found.row


FINDING = {"group": "values", "shown_by": ["values, as given: result: 1 of 3 values are wrong"]}
PLAIN = Entry("somebody/kernels", "0" * 40, "wrong", "values", "result")


@pytest.mark.parametrize(
    ("entry", "parent", "fix", "is_right"),
    [
        (PLAIN, [FINDING], [], True),
        (PLAIN, [], [], False),
        (PLAIN, [FINDING], [FINDING], False),
        (PLAIN._replace(says="gradient 1"), [FINDING], [], False),
        (PLAIN._replace(group="dtypes"), [FINDING], [], False),
        (PLAIN, [FINDING], [{**FINDING, "group": "writes"}], False),
        (PLAIN._replace(accepted=(("writes", "its documentation says so"),)), [FINDING], [{"group": "writes"}], True),
    ],
)
def test_the_parent_fails_for_the_right_reason_and_the_fix_passes(entry, parent, fix, is_right):
    assert Outcome(entry, parent, fix, 1.0).is_right == is_right


def test_there_are_entries_of_four_repositories_and_of_many_kinds():
    found = list(entries().values())
    assert len(found) >= 12
    assert len({entry.repository for entry in found}) >= 4
    assert len({entry.group for entry in found}) >= 4
    assert all(len(entry.fix) == 40 for entry in found)


def test_whatever_is_accepted_is_shown_by_hand():
    accepted = {(file.stem, group) for file, entry in entries().items() for group, _ in entry.accepted}
    assert by_hand.SHOWN.keys() == accepted
