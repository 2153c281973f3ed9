"""Source distributions, what package indexes want of the files, and the digest that lock files have."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from release import build, projects

pytestmark = pytest.mark.wheels

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github/workflows"


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False, **options
    )


def test_a_wheel_with_several_backends_is_built_once():
    found = projects.projects()
    assert len({project.folder for project in found}) == len(found)
    assert [project.name for project in found if project.folder.name == "triton"] == ["transformer-triton"]


@pytest.mark.parametrize("command", [("twine", "check", "--strict"), ("check_wheel_contents",)], ids=lambda c: c[0])
def test_package_indexes_take_the_wheels(wheels, command):
    result = run(*command, *wheels)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="session")
def two_builds(tmp_path_factory):
    """From two checkouts, under other names and with other modes: framework and core, and the core alone.

    The framework takes half a minute each time: make nightly builds it and every other project twice, and optimized.
    """
    outs = []
    for name, umask, names in (("one", "022", ["framework", "core"]), ("two/deeper", "077", ["core"])):
        folder = tmp_path_factory.mktemp("checkout") / name
        command = (
            f"umask {umask}; mkdir -p {folder}; cp -r --no-preserve=mode "
            f"framework core release plugins.toml LICENSE {folder}"
        )
        subprocess.run(command, shell=True, cwd=ROOT, check=True)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000", "CXXFLAGS": "-O0"}
        command = [sys.executable, "-m", "release.build", "--out", "dist", *names]
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert result.stdout.count(".whl") == len(names)
        outs.append(folder / "dist")
    return outs


@pytest.mark.nightly
def test_the_same_bytes_from_two_checkouts(two_builds):
    one, two = ({path.name: path.read_bytes() for path in out.iterdir()} for out in two_builds)
    assert (len(one), len(two)) == (4, 2)
    assert two.keys() <= one.keys()
    assert [name for name in two if one[name] != two[name]] == []


def test_libraries_do_not_name_the_builders_folders(wheels):
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                assert not name.endswith(".so") or b"site-packages/" not in archive.read(name), wheel.name


@pytest.mark.nightly
@pytest.mark.parametrize(("project", "name"), [("framework", "opwheel"), ("core", "muladd_core")])
def test_source_distributions_have_every_source(two_builds, project, name):
    (sdist,) = two_builds[0].glob(f"{name}-*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    sources = {str(path.relative_to(ROOT / project)) for path in (ROOT / project).rglob("*") if path.is_file()}
    sources = {path for path in sources if not path.startswith(("build/", "tests/")) and "egg-info" not in path}
    built = (".pyc", ".pyi", ".so")
    assert {path for path in sources if not path.endswith(built) and "/." not in f"/{path}"} <= members.keys()
    assert {member.mtime for member in members.values()} == {1790000000}
    assert all(member.isfile() or member.isdir() for member in members.values())


def test_lock_digests_are_those_of_the_wheels(wheels, tmp_path):
    from opwheel.registry.installed import read_installed, wheel_digest

    for wheel in wheels:
        target = tmp_path / wheel.stem
        result = run("pip", "install", "--quiet", "--no-deps", "--target", target, wheel)
        assert result.returncode == 0, result.stderr
        (distribution,) = metadata.distributions(path=[str(target)])
        with zipfile.ZipFile(wheel) as archive:
            (record,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
            digest = wheel_digest(archive.read(record).decode())
        installed = read_installed(distribution, distribution.name)
        assert installed.problems == ()
        assert installed.sha256 == digest


def test_what_cannot_be_built_is_skipped_with_its_reason(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[build-system]\nrequires = ["setuptools", "no-such-tool>=3"]\n')
    project = projects.Project("odd", tmp_path)
    assert projects.unmet_requirements(project, sys.executable) == ["no-such-tool>=3"]
    row = build.build_or_skip(project, [sys.executable], tmp_path / "dist", is_named=False)
    assert "skipped: not installed here: no-such-tool>=3" in build.table([row])
    assert not (tmp_path / "dist").exists()


def test_unknown_project():
    result = run("release.build", "colour", "--out", "/nonexistent")
    assert result.returncode == 2
    assert "no project colour; there are framework, tools, core, cpu, cuda, sycl, executorch" in result.stderr


def test_a_failing_build_shows_the_compilers_words(tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(ROOT / "core", folder, ignore=shutil.ignore_patterns("build"))
    (folder / "csrc/schema.cpp").write_text("#error broken on purpose\n")
    code = (
        "from pathlib import Path; from release import build, projects\n"
        f"build.build(projects.Project('core', Path({str(folder)!r})), {sys.executable!r}, Path({str(tmp_path)!r}))"
    )
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert "broken on purpose" in result.stderr


def test_the_bill_of_materials_is_valid_and_complete(wheels, tmp_path):
    result = run("release.sbom", wheels[0].parent, tmp_path / "sbom.cdx.json")
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    components = {one["bom-ref"]: one for one in document["components"]}
    for wheel in wheels:
        (digest,) = components[wheel.name]["hashes"]
        assert digest == {"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}
    needs = {one["ref"]: set(one.get("dependsOn", ())) for one in document["dependencies"]}
    assert needs.keys() == components.keys()
    (core,) = (name for name in components if name.startswith("muladd_core-"))
    (framework,) = (name for name in components if name.startswith("opwheel-"))
    assert needs[core] == {"torch", framework}
    assert all(core in needs[name] for name in components if name.startswith("muladd_cpu-"))
    assert "pytest" not in components  # of an extra


def test_without_wheels_there_is_no_bill_of_materials(tmp_path):
    result = run("release.sbom", tmp_path, tmp_path / "sbom.cdx.json")
    assert result.returncode == 1
    assert "there is no wheel" in result.stderr


def test_workflows_are_valid():
    files = sorted(WORKFLOWS.glob("*.yml"))
    assert {file.stem for file in files} == {"lint", "newest", "test", "wheels", "release"}
    result = run("check_jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    assert result.returncode == 0, result.stdout + result.stderr


def test_workflows_pin_what_they_use():
    for file in WORKFLOWS.glob("*.yml"):
        for line in file.read_text().splitlines():
            if "uses:" in line and "./" not in line:
                reference = line.partition("@")[2].split()
                assert len(reference[0]) == 40, f"{file.name}: {line.strip()} is not pinned to a commit"
