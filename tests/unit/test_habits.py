"""What has to be said twice is the same in both places: parts of `make test`, folders of tests, versions of tools."""

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


def test_the_readme_of_the_tests_names_every_folder_and_no_other():
    text = (ROOT / "tests/README.md").read_text()
    table = re.findall(r"^\|[^|]*\|((?: `\w+`,?)+) \|", text, re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert named == folders


def test_the_readme_of_the_tests_names_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z-]+)(?: [a-z -]+)?:(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"make ([a-z-]+)", (ROOT / "tests/README.md").read_text())
    assert set(named) <= targets


def test_superseded_decisions_are_kept_and_name_their_successor():
    files = {int(path.name[:4]): path for path in (ROOT / "docs/decisions").glob("0*.md")}
    assert sorted(files) == list(range(1, len(files) + 1))
    for number, path in files.items():
        text = path.read_text()
        for old in re.findall(r"Supersedes \[decision (\d+)\]", text):
            assert f"Superseded by [decision {number}]({path.name})" in files[int(old)].read_text()
        for new, link in re.findall(r"[Ss]uperseded by \[decision (\d+)\]\(([^)]+)\)", text):
            assert files[int(new)].name == link
            assert f"decision {number}]({path.name})" in files[int(new)].read_text()


def test_pre_commit_has_the_tools_of_lint():
    lint = re.search(r"^lint = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    pinned = dict(re.findall(r'"([\w-]+)==([\d.]+)"', lint))
    hooks = dict(re.findall(r"/([\w-]+)\n    rev: v([\d.]+)", (ROOT / ".pre-commit-config.yaml").read_text()))
    assert hooks == {"ruff-pre-commit": pinned["ruff"], "mirrors-clang-format": pinned["clang-format"]}


def test_actions_are_pinned_by_their_hash():
    for workflow in WORKFLOWS.glob("*.yml"):
        for used in re.findall(r"uses: ([^\s#]+)", workflow.read_text()):
            assert used.startswith("./") or re.search(r"@[0-9a-f]{40}$", used), f"{workflow.name}: {used}"
