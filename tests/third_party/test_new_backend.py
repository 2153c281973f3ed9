"""new-backend: what it writes builds, is discovered and passes the conformance kit unedited."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import muladd as muladd_package
import pytest
from opwheel_tools import scaffold

from tests.matrix import outcomes
from tests.portions import first_of

from .environment import HAS_SYCL, IS_WHOLE_KIT, KERNEL_TESTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.wheels


def written(muladd, tmp_path, *arguments):
    result = muladd("new-backend", "acme", *arguments)
    assert result.returncode == 0, result.stderr
    project = tmp_path / "muladd-acme"
    listed = [line.strip() for line in result.stdout.splitlines() if (project / line.strip()).is_file()]
    files = [path for path in project.rglob("*") if path.is_file()]
    assert len(listed) == len(files)
    assert f"wrote {len(files)} files into muladd-acme" in result.stdout
    assert "pip install --no-build-isolation ." in result.stdout
    assert "MULADD_BACKENDS=acme muladd doctor" in result.stdout
    return project


# test_new_library.py has the template in C++ as well, which new-library renders with its own.
@pytest.mark.slow
@pytest.mark.parametrize("language", first_of(["python", "cpp"]))
def test_a_backend_for_the_cpu(muladd, environment, tmp_path, language):
    project = written(muladd, tmp_path, "--language", language)
    environment.install(project)
    assert environment.status("acme")["state"] == "shadowed"  # muladd-cpu is there, and the policy prefers it
    status = environment.status("acme", MULADD_BACKENDS="acme")
    assert (status["state"], status["distribution"]) == ("loaded", "muladd-acme")
    assert sorted(status["operators"]) == sorted(muladd_package.library.operators)
    environment.passes_the_kit("acme", MULADD_BACKENDS="acme")


def test_the_project_s_own_tests(muladd, environment, tmp_path):
    """On a machine without the device: the kit is skipped with the reason."""
    project = written(muladd, tmp_path, "--language", "python", "--device-type", "npu")
    environment.install(project)
    options = ("-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests")
    result = environment.run(*options, cwd=project)
    assert result.returncode == 0, result.stdout
    assert "1 passed, 1 skipped" in result.stdout
    assert "PyTorch knows no device 'npu'" in result.stdout


@pytest.mark.slow
def test_the_project_s_workflow(muladd, environment, tmp_path):
    """Its commands as they are, with what has to come from an index already there; pytest shows what the kit says."""
    project = written(muladd, tmp_path, "--language", "python")
    workflow = (project / ".github/workflows/test.yml").read_text()
    commands = re.findall(r"^      - run: (.+)$", workflow, re.MULTILINE)
    assert commands[-2:] == ["python -m pip install --no-build-isolation .", "python -m pytest"]
    chosen = {"PYTEST_ADDOPTS": "-k 'test_conformance or test_special'", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    path = f"{environment.python.parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands:
        result = subprocess.run(
            ["bash", "-ec", command],
            cwd=project,
            env={**os.environ, **chosen, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    assert "coverage of muladd's backend acme" in result.stdout
    assert "ok" in outcomes(result.stdout)["muladd"]
    assert re.search(r"^\d+ passed", result.stdout, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(not IS_WHOLE_KIT, reason="nvcc takes half a minute: make test-third-party builds it")
def test_a_backend_for_cuda(muladd, environment, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    environment.install(written(muladd, tmp_path, "--language", "cuda"))
    status = environment.status("acme", MULADD_BACKENDS="acme")
    assert status["state"] in ("loaded", "unsupported")
    if status["state"] == "loaded":
        environment.passes_the_kit("acme", MULADD_BACKENDS="acme")
    else:
        assert "torch" in status["reason"]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(not HAS_SYCL, reason="the SYCL runtime is not installed: make nightly has an environment with it")
def test_a_backend_for_intel_gpus(muladd, environment, tmp_path):
    """On a simulated device, as muladd-sycl's own tests."""
    environment.install(written(muladd, tmp_path, "--language", "sycl"))
    assert "without support for Intel GPUs" in environment.status("acme", MULADD_BACKENDS="acme")["reason"]
    chosen = () if IS_WHOLE_KIT else ("-k", KERNEL_TESTS)
    variables = {"PYTHONPATH": str(Path(__file__).parents[1]), "MULADD_BACKENDS": "acme"}
    environment.passes_the_kit("acme", options=("-p", "simulated_xpu", *chosen), **variables)


@pytest.mark.parametrize("language", ["cpp", "cuda", "sycl", "triton", "python"])
def test_the_source_distribution_is_complete(muladd, environment, tmp_path, language):
    project = written(muladd, tmp_path, "--language", language)
    environment.evaluate("import setuptools.build_meta as b; b.build_sdist('dist')", cwd=project)
    (archive,) = (project / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
    sources = {path for folder in ("csrc", "src") for path in (project / folder).rglob("*") if path.is_file()}
    assert {str(path.relative_to(project)) for path in sources if "egg-info" not in str(path)} <= packed


WRONG = [
    ({"name": "Acme"}, "not a valid name for a backend"),
    ({"name": "acme x"}, "not a valid name for a backend"),
    ({"name": "../acme"}, "not a valid name for a backend"),
    ({"name": "cpu"}, "reserved"),
    ({"name": "executorch"}, "reserved"),
    ({"name": "core"}, "reserved"),
    ({"name": "muladd"}, "reserved"),
    ({"name": "import"}, "keyword"),
    ({"name": "taken"}, "is an installed package"),
    ({"language": "rust"}, "choose one of cpp, cuda, sycl, triton, python"),
    ({"device_type": "NPU"}, "not a device type"),
    ({"device_type": "mps"}, "no template for 'mps'"),
    ({"device_type": "cuda"}, "--language cuda or --language python"),
    ({"device_type": "xpu"}, "--language sycl or --language python"),
    ({"language": "sycl", "device_type": "cuda"}, "for --device-type xpu"),
    ({"language": "cuda", "device_type": "cpu"}, "for --device-type cuda"),
    ({"language": "triton", "device_type": "cpu"}, "Triton compiles for --device-type cuda or xpu"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=lambda value: str(value))
def test_what_is_refused(tmp_path, monkeypatch, options, words):
    (tmp_path / "muladd_taken.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(scaffold.ScaffoldError, match=words):
        scaffold.new_backend(muladd_package.library, output=tmp_path / "project", **{"name": "acme", **options})
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize("header", ["#pragma once\n", None], ids=["without the list", "missing"])
def test_a_library_without_a_list_for_cpp_is_refused(tmp_path, monkeypatch, header):
    """Such as one whose operators are registered in Python alone: nothing could be built from its headers."""
    includes = tmp_path / "include"
    (includes / "muladd").mkdir(parents=True)
    if header is not None:
        (includes / "muladd/operators.h").write_text(header)
    monkeypatch.setattr(type(muladd_package.library), "get_include", lambda self: str(includes))
    for language in ("cpp", "cuda", "sycl"):
        with pytest.raises(
            scaffold.ScaffoldError, match=r"operators.h has no list MULADD_OPERATORS.* use --language python"
        ):
            scaffold.new_backend(muladd_package.library, "acme", language=language, output=tmp_path / "project")
    assert not (tmp_path / "project").exists()
    assert scaffold.new_backend(muladd_package.library, "acme", language="python", output=tmp_path / "project")


def test_wrong_usage(muladd, tmp_path):
    result = muladd("new-backend", "cpu")
    assert result.returncode == 2
    assert "reserved" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("language", "device_type"),
    [
        ("cpp", "cpu"),
        ("cpp", "npu"),
        ("cuda", "cuda"),
        ("sycl", "xpu"),
        ("triton", "cuda"),
        ("triton", "xpu"),
        *(("python", device) for device in ("cpu", "cuda", "xpu", "npu")),
    ],
)
def test_what_is_written_is_well_formed(tmp_path, language, device_type):
    project = scaffold.new_backend(
        muladd_package.library, "acme", language=language, device_type=device_type, output=tmp_path / "project"
    )
    for file in project.files:
        text = (project.folder / file).read_text()
        assert not re.search(r"(?<!\$)\{\{|\{%|%\}", text), file
        assert max(map(len, text.splitlines()), default=0) <= 120, file
        if file.suffix == ".py":
            compile(text, str(file), "exec")
        if file.suffix == ".toml":
            assert tomllib.loads(text)["project"]["entry-points"] == {"muladd.backends": {"acme": "muladd_acme"}}


def test_nothing_is_overwritten(muladd, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    scaffold.new_backend(muladd_package.library, "acme", output=here)  # an empty folder is free
    before = {path: path.read_text() for path in here.rglob("*") if path.is_file()}
    result = muladd("new-backend", "acme", "--language", "python", "--output", "here")
    assert result.returncode == 2
    assert "not an empty" in result.stderr
    assert {path: path.read_text() for path in here.rglob("*") if path.is_file()} == before
