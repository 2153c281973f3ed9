"""What has to be said twice is the same in both places: parts of `make test`, versions of tools."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github/workflows"


def parts_of_make_test():
    return set(re.search(r"^PARTS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split())


def test_workflows_run_every_part():
    text = (WORKFLOWS / "test.yml").read_text()
    assert set(re.findall(r"\btest-[a-z]+\b", text)) == parts_of_make_test()
    assert "part: demo" in text


def test_pre_commit_has_the_tools_of_lint():
    lint = re.search(r"^lint = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    pinned = dict(re.findall(r'"([\w-]+)==([\d.]+)"', lint))
    hooks = dict(re.findall(r"/([\w-]+)\n    rev: v([\d.]+)", (ROOT / ".pre-commit-config.yaml").read_text()))
    assert hooks == {"ruff-pre-commit": pinned["ruff"], "mirrors-clang-format": pinned["clang-format"]}


def test_actions_are_pinned_by_their_hash():
    for workflow in WORKFLOWS.glob("*.yml"):
        for used in re.findall(r"uses: ([^\s#]+)", workflow.read_text()):
            assert used.startswith("./") or re.search(r"@[0-9a-f]{40}$", used), f"{workflow.name}: {used}"
