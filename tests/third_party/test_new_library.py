"""opwheel new-library: another operator library on the same framework, which passes its own conformance kit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from opwheel_tools import scaffold

from tests.command_line import invoke
from tests.docs.blocks import blocks
from tests.portions import first_of

from .environment import IS_WHOLE_KIT, KERNEL_TESTS

pytestmark = pytest.mark.wheels
ROOT = Path(__file__).parents[2]
# As the README of a project says: its own tests, and the whole kit; of that, a part in make test. For pytest's
# environment, and so for the kit's process, too.
NAMES = f"test_operators or test_conformance or {KERNEL_TESTS} or (test_samples and values)"
CHOSEN = "" if IS_WHOLE_KIT else f"-k '{NAMES}'"


@pytest.mark.slow
def test_it_builds_and_passes_its_own_kit(environment, tmp_path):
    command = [sys.executable, "-m", "opwheel", "new-library", "ocean-waves"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "ocean-waves"
    assert f"wrote {sum(path.is_file() for path in folder.rglob('*'))} files" in result.stdout
    environment.install(folder / "core")
    without = environment.run("-m", "ocean_waves", "doctor")
    assert without.returncode == 1
    environment.install(folder / "backends/cpu")
    doctor = environment.run("-m", "ocean_waves", "doctor")
    assert doctor.returncode == 0
    row = ["cpu", "loaded", "CPU", "ocean-waves-cpu", "0.1.0"]
    assert row in [line.split()[:5] for line in doctor.stdout.splitlines()]
    own = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder, PYTEST_ADDOPTS=CHOSEN)
    assert own.returncode == 0, own.stdout
    assert "ok: passed, FAIL: failed" in own.stdout
    # Its policy and its environment variables are its own.
    assert environment.status("cpu", "ocean_waves", OCEAN_WAVES_BACKENDS="")["state"] == "disabled"
    assert environment.status("cpu", "muladd", OCEAN_WAVES_BACKENDS="")["state"] == "loaded"
    failed = environment.run(
        "-c", "import torch, ocean_waves as o; o.axpby(torch.ones(2), torch.ones(2), 1, 1)", OCEAN_WAVES_BACKENDS=""
    )
    assert "ocean_waves::axpby has no kernel for cpu tensors" in failed.stderr


def commands_of_the_page():
    """Those of the first block of docs/new-library.md, without the one that installs the framework."""
    first = next(block for block in blocks(ROOT / "docs/new-library.md") if block.language == "console")
    install, *rest = [line.removeprefix("$ ") for line in first.text.splitlines()]
    assert install.startswith('pip install "opwheel-tools')
    return "\n".join(rest)


@pytest.mark.slow
def test_the_page_s_commands_make_a_library_of_rows(environment, tmp_path):
    """From nothing to an operator with a kernel in C++ and a gradient that passes the kit."""
    done = subprocess.run(
        ["bash", "-euxc", commands_of_the_page()],
        env={
            **os.environ,
            "PATH": os.pathsep.join(
                [str(environment.python.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "PIP_PYTHON": str(environment.python),
            "PIP_NO_DEPS": "1",
            "PYTEST_ADDOPTS": CHOSEN,
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "ok: passed, FAIL: failed" in done.stdout
    assert not [path for path in (tmp_path / "waves").rglob("*") if path.name in ("functors.h", "register.cpp")]


@pytest.mark.parametrize("kinds", [("rows",), ("elementwise",), ("elementwise", "rows")], ids="-".join)
def test_what_is_written_is_used(tmp_path, kinds):
    """No file, list or name of a kind that the library does not have; lines of 120 characters."""
    project = scaffold.new_library("ocean-waves", kinds=kinds, output=tmp_path / "project")
    texts = {file: (project.folder / file).read_text() for file in project.files}
    words = {
        "elementwise": ["axpby", "OPERATORS(", "functor", "register.cpp"],
        "rows": ["softmax", "KERNELS(", "opinfos"],
    }
    for kind, of_kind in words.items():
        for word in of_kind:
            found = [str(file) for file, text in texts.items() if word in text or word in str(file)]
            assert bool(found) == (kind in kinds), (word, found)
    assert [(str(file), line) for file, text in texts.items() for line in text.splitlines() if len(line) > 120] == []
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,W", "--line-length", "120"]
    checked = subprocess.run([*command, project.folder], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    first_of(
        [
            "import setuptools.build_meta as b; b.build_editable('dist')",
            "import runpy, sys; sys.argv[1:] = ['build_ext', '--inplace']; runpy.run_path('setup.py')",
        ]
    ),
    ids=["editable", "in place"],
)
def test_type_checkers_find_the_functions_of_a_project_that_is_installed_from_its_folder(tmp_path, build):
    """The stub is beside the modules, which are in the source."""
    scaffold.new_library("ocean-waves", output=tmp_path)
    for _ in range(2):  # into a clean folder, and over what is there
        command = [sys.executable, "-c", build]
        done = subprocess.run(command, cwd=tmp_path / "core", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        package = tmp_path / "core/src/ocean_waves"
        assert (package / "libocean_waves_schema.so").is_file()
        assert "def axpby(" in (package / "__init__.pyi").read_text()
    program = "import torch, ocean_waves\nreveal_type(ocean_waves.axpby(torch.ones(2), torch.ones(2), 1.0, 1.0))"
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "-c", program],
        env={**os.environ, "MYPYPATH": str(package.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'Revealed type is "torch._tensor.Tensor"' in checked.stdout, checked.stdout


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Waves", "not a valid name for a library"),
        ("2waves", "not a valid name for a library"),
        ("torch", "reserved"),
        ("opwheel", "reserved"),
        ("class", "keyword"),
        ("json", "standard library"),
        *((name, "reserved") for name in ("setuptools", "pip", "ninja")),
        *((name, "keyword of C") for name in ("union", "double", "int", "static", "template", "new", "namespace")),
        *((name, "another meaning") for name in ("std", "at", "c10", "detail", "cpu", "cuda", "softmax", "tm")),
        *((name, "function of the C library") for name in ("gamma", "exp", "index", "sin", "remove", "conj")),
        *((name, "PyTorch's operators") for name in ("quantized", "inductor", "profiler", "torchvision", "c10d")),
        *((name, "PyTorch's operators") for name in ("debugprims", "quantized-decomposed", "prepacked", "mkldnn")),
        *(
            (name, "installed package")
            for name in ("hypothesis", "pytest", "typer", "muladd", "muladd-cpu", "transformer-ops")
        ),
    ],
)
def test_wrong_names(tmp_path, name, words):
    with pytest.raises(scaffold.ScaffoldError, match=words):
        scaffold.new_library(name, output=tmp_path / "project")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["waves", "unions", "doubled", "at-home", "my_exp", "cpus", "torchlike"])
def test_names_that_only_look_like_wrong_ones(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / name).mkdir()  # an empty folder, which Python could import
    assert scaffold.new_library(name).folder == Path(name)


@pytest.mark.parametrize("name", ["union", "std", "quantized", "setuptools", "exp", "muladd"])
def test_the_command_refuses_names_in_a_sentence(name, tmp_path):
    result = invoke(None, "new-library", name, "--output", tmp_path / "project")
    assert result.exit_code == 2
    assert f"'{name}' is " in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(scaffold.ScaffoldError, match="not an empty folder"):
        scaffold.new_library("waves", output=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
