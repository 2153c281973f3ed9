"""Every code block of the documentation is run, but for the few that a test machine cannot run."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .blocks import ROOT, RUNNERS, Block, BlockError, blocks, compare, environment, run_page

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
WITH_CODE = [page for page in PAGES if any(not block.not_run for block in blocks(page))]

# Page and reason of the blocks that are not run. Think twice before adding one.
NOT_RUN = [
    ("CONTRIBUTING.md", "they contain this test"),
    ("CONTRIBUTING.md", "the Makefile and tests/wheels do it"),
    ("README.md", "they contain this test"),
    ("docs/audit.md", "tests/audit/test_torchvision.py does it"),
    ("docs/audit.md", "needs bitsandbytes"),
    ("docs/audit.md", "needs torchao"),
    ("docs/benchmarks.md", "takes half an hour; tests/toolchain/test_bench.py runs small cases"),
    ("docs/building.md", "tests/third_party/test_new_library.py and tests/toolchain/test_building.py do it"),
    ("docs/building.md", "takes minutes; tests/toolchain/test_building.py does it with a small library"),
    ("docs/building.md", "takes minutes; tests/toolchain/test_building.py does it with a small library"),
    ("docs/building.md", "takes minutes; tests/toolchain/test_building.py does it with a small library"),
    ("docs/building.md", "needs a container; tests/toolchain/test_building.py runs auditwheel"),
    *[("docs/changing-a-schema.md", "a message")] * 2,
    ("docs/commands.md", "takes an hour or two"),
    ("docs/cuda.md", "make test builds the wheel in this way"),
    ("docs/cuda.md", "needs a CUDA toolkit of release 12"),
    ("docs/deployment.md", "make test-deploy builds and runs these examples"),
    ("docs/deployment.md", "a message"),
    ("docs/deployment.md", "make test-deploy builds and runs these examples"),
    ("docs/deployment.md", "make test-deploy builds and runs these examples"),
    ("docs/deployment.md", "needs digits.pte; tests/deploy/test_executorch.py does it"),
    ("docs/development.md", "needs a GPU"),
    ("docs/development.md", "the results are measured rarely"),
    ("docs/development.md", "five minutes, and the results are measured rarely"),
    ("docs/development.md", "half a minute, and needs valgrind"),
    ("docs/development.md", "it builds the wheels, and takes minutes"),
    ("docs/development.md", "they contain this test"),
    ("docs/development.md", "tests/third_party/test_new_backend.py does it"),
    ("docs/development.md", "tests/third_party/test_new_library.py does it"),
    ("docs/index.md", "the Makefile and tests/wheels do it"),
    ("docs/install.md", "the Makefile and tests/wheels do it"),
    ("docs/install.md", "they contain this test"),
    ("docs/install.md", "it would remove what the other pages use"),
    ("docs/lock.md", "serve.py stands for any program; tests/faults/test_lock.py does it"),
    ("docs/lock.md", "a message"),
    ("docs/new-backend.md", "tests/third_party/test_new_backend.py does it"),
    ("docs/new-library.md", "tests/third_party/test_new_library.py does it"),
    ("docs/placements.md", "examples/language_model/test_train_sharded.py does it"),
    ("docs/placements.md", "libraries/transformer/tests/test_sharded.py does it"),
    *[("docs/privateuse1.md", "tests/third_party/test_plugins.py does it")] * 4,
    ("docs/production.md", "resolves the whole of torch; tests/wheels/test_production.py does it with the wheels"),
    ("docs/production.md", "tests/wheels/test_production.py does it"),
    ("docs/production.md", "it bundles PyTorch, which takes minutes"),
    ("docs/releasing.md", "takes fifteen minutes; workflows do it for a release"),
    ("docs/releasing.md", "takes a cross compiler and 1 GB"),
    ("docs/releasing.md", "downloads 300 MB; a nightly test does it"),
    ("docs/releasing.md", "builds CPythons"),
    ("docs/transformer.md", "the Makefile and tests/wheels do it"),
    ("docs/writing-a-backend.md", "a message"),
    ("docs/writing-an-operator.md", "it needs a library's sources"),
]


def name(page):
    return str(page.relative_to(ROOT))


def test_exemptions_are_few():
    assert [(name(page), block.not_run) for page in PAGES for block in blocks(page) if block.not_run] == NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_can_be_run_or_says_why_not(page):
    for block in blocks(page):
        assert block.not_run or block.file_name or block.language in RUNNERS, f"{name(page)}:{block.line}"


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_blocks(page, tmp_path):
    for folder in ("backends", "benchmarks", "core", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("blocks.py")), str(page)],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize(("page", "command"), [("audit", "opwheel audit "), ("judging", "opwheel judge ")])
def test_workflows_have_five_lines(page, command):
    (block,) = [one for one in blocks(ROOT / "docs" / f"{page}.md") if one.language == "yaml"]
    assert block.file_name.startswith(".github/workflows/")
    assert len(block.text.splitlines()) == 5
    (job,) = yaml.safe_load(block.text)["jobs"].values()
    checkout, runs = job["steps"]
    assert list(checkout) == ["uses"]
    assert f" && {command}" in runs["run"]


def page_of(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


def test_finds_blocks_with_names_reasons_and_lines(tmp_path):
    page = page_of(
        tmp_path,
        "# Title\n\n`a/b.py`\n\n```python\nx = 1\n```\n\n```console\n$ ls\n```\n\n<!-- not run: why\nnot -->\n\n"
        "```console\n$ rm\n```\n\n```{toctree}\npage\n```\n",
    )
    assert list(blocks(page)) == [
        Block("python", "x = 1\n", 6, file_name="a/b.py"),
        Block("console", "$ ls\n", 10),
        Block("console", "$ rm\n", 17, not_run="why not"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```python\nassert 1 == 2\n```\n", "AssertionError"),
        ("```pycon\n>>> 1 + 1\n3\n```\n", "Expected:"),
        ("```console\n$ false\n```\n", "exit code 1"),
        ("```console\n$ echo one\ntwo\n```\n", "but this was printed"),
        ("```console\nls\n```\n", "starts each command"),
        ("```toml\n[policy]\nfallback = 'never'\n```\n", "fallback"),
        ("```toml\na = = 1\n```\n", "TOMLDecodeError"),
    ],
    ids=["python", "pycon", "exit code", "output", "prompt", "plugins.toml", "toml"],
)
def test_a_wrong_block_fails(tmp_path, monkeypatch, text, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as error:  # noqa: PT011  # each kind of block has its own
        run_page(page_of(tmp_path, text))
    assert words in f"{error.type.__name__}: {error.value}"


def test_blocks_share_a_namespace_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(
        page_of(
            tmp_path,
            "```python\nx = 1\n```\n\n`f/g.txt`\n\n```text\nhello\n```\n\n```pycon\n>>> x + 1\n2\n```\n\n"
            "```console\n$ cat \\\n    f/g.txt\nhel...\n```\n",
        )
    )


def test_compares_lines_in_order_whatever_the_numbers():
    compare(["a 1.5 ms", "c ... e"], "a   27 ms\nb\nc d e\n")
    with pytest.raises(BlockError):
        compare(["c", "a"], "a\nc\n")
