"""The metapackage muladd: what pip and uv install for which machine, and that the package itself disturbs nothing."""

import copy
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from opwheel.commands import suggest
from packaging.requirements import Requirement

from release import audit, variants

pytestmark = pytest.mark.wheels

ROOT = Path(__file__).parents[2]
PLAIN = {"muladd-core", "muladd-cpu"}
FORCED_DRIVER, FORCED_INTEL = "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION", "INTEL_VARIANT_PROVIDER_FORCE_GT_GMDID"


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """What release.build makes of it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "release.build", "--out", str(folder), "metapackage"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "metapackage-cu13" in result.stdout
    return folder


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def serve(tmp_path):
    """Makes an index of files, with the project muladd alone; the address of its simple pages."""
    servers = []

    def start(files):
        folder = tmp_path / f"index{len(servers)}"
        (folder / "muladd").mkdir(parents=True)
        for file in files:
            shutil.copy(file, folder / "muladd")
        links = "".join(f'<a href="{file.name}">{file.name}</a>\n' for file in files)
        (folder / "muladd/index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
        handler = functools.partial(Quiet, directory=folder)
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def index(dist, serve):
    return serve([*dist.glob("*.whl"), *(dist / "variants").iterdir()])


def installed_by(command, target, **variables):
    """The requirements of the wheel that an installer took."""
    unset = ("UV_", "PIP_", "MULADD_", FORCED_DRIVER, FORCED_INTEL)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(unset)}
    command = [*map(str, command), "--no-deps", "--target", str(target), "muladd"]
    result = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (distribution,) = metadata.distributions(path=[str(target)])
    return {Requirement(text).name for text in distribution.requires}


def uv(index, target, *, preview=True, **variables):
    module = pytest.importorskip("uv", reason="uv is not installed: pip install --group release")
    options = ("pip", "install", "--no-config", "--no-cache", "--quiet", "--index-url", index)
    features = {"UV_PREVIEW_FEATURES": "wheel-variants"} if preview else {}
    return installed_by([module.find_uv_bin(), *options], target, **features, **variables)


@pytest.mark.parametrize(
    ("driver", "added"),
    [("12.9", set()), ("13.0", {"muladd-cuda"}), ("13.2", {"muladd-cuda"}), ("14.0", {"muladd-cuda"})],
)
def test_uv_goes_by_the_driver(index, tmp_path, driver, added):
    assert uv(index, tmp_path / "out", **{FORCED_DRIVER: driver}) == PLAIN | added


def test_the_install_page_names_the_uv_that_is_tested():
    pytest.importorskip("uv")
    assert f"uv {metadata.version('uv')} " in (ROOT / "docs/install.md").read_text()


def test_uv_without_its_preview_takes_the_plain_wheel(index, tmp_path):
    assert uv(index, tmp_path / "out", preview=False, **{FORCED_DRIVER: "13.0"}) == PLAIN


def test_uv_finds_an_intel_gpu(index, tmp_path):
    chosen = uv(index, tmp_path / "out", **{FORCED_DRIVER: "12.9", FORCED_INTEL: "20.1.0"})
    if chosen == PLAIN:
        pytest.skip("this uv has no provider for Intel GPUs and takes the plain wheel")
    assert chosen == PLAIN | {"muladd-sycl"}


@pytest.mark.parametrize(("gpu", "added"), [("20.1.0", {"muladd-sycl"}), ("11.0.0", set())], ids=["Arc B", "older"])
def test_uv_takes_the_variant_for_intel_gpus_where_its_provider_answers(dist, serve, tmp_path, gpu, added):
    """The provider's answer is in the files: the draft about providers lets them have static properties."""
    description = copy.deepcopy(variants.read_description(ROOT / "metapackage" / variants.DESCRIPTION))
    description["providers"]["intel"] = {"static-properties": {"gt_gmdid": [gpu]}}
    (plain,) = dist.glob("*.whl")
    variants.write_variants(plain, description, tmp_path / "variants")
    index = serve([plain, *(tmp_path / "variants").iterdir()])
    assert uv(index, tmp_path / "out", **{FORCED_DRIVER: "12.9"}) == PLAIN | added


def test_pip_takes_the_plain_wheel(index, tmp_path):
    command = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--no-cache-dir", "--index-url", index]
    assert installed_by(command, tmp_path / "out", **{FORCED_DRIVER: "13.0"}) == PLAIN


@pytest.mark.parametrize(
    ("devices", "label"), [((), None), (("cuda",), "cu13"), (("xpu",), "xpu")], ids=["cpu", "cuda", "xpu"]
)
def test_doctor_suggests_what_the_variant_requires(dist, capsys, monkeypatch, devices, label):
    import muladd

    monkeypatch.setattr(suggest, "_devices", lambda: [(device, "found") for device in ("cpu", *devices)])
    suggest.suggest(muladd.library)
    suggested = set(capsys.readouterr().out.removeprefix("pip install ").split())
    pattern = f"variants/*-{label}.whl" if label else "*.whl"
    (wheel,) = dist.glob(pattern)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    required = {Requirement(line.partition(": ")[2]).name for line in lines if line.startswith("Requires-Dist")}
    assert required == suggested


def test_the_wheels_are_small_and_have_metadata_alone(dist):
    wheels = [*dist.glob("*.whl"), *dist.glob("variants/*.whl")]
    assert {wheel.name: audit.audit(wheel) for wheel in wheels} == {wheel.name: [] for wheel in wheels}
    assert len(wheels) == 3


def test_the_audit_finds_a_module_and_another_label(dist, tmp_path):
    wheel = tmp_path / "muladd-0.1.0-py3-none-any-cu12.whl"
    shutil.copy(next(dist.glob("variants/*-cu13.whl")), wheel)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("muladd/__init__.py", "")
        archive.writestr("muladd-0.1.0.dist-info/large", os.urandom(5_000))
    problems = audit.audit(wheel)
    assert any("muladd/__init__.py does not belong into it" in problem for problem in problems)
    assert any("its name says variant cu12, its variant.json ['cu13']" in problem for problem in problems)
    assert any("at most 5000 are expected" in problem for problem in problems)
    renamed = wheel.rename(tmp_path / "muladd-0.1.0-py3-none-linux_x86_64.whl")
    assert "py3-none-any" in audit.audit(renamed)[0]


def test_the_same_bytes_again(dist, tmp_path):
    (plain,) = dist.glob("*.whl")
    description = variants.read_description(ROOT / "metapackage" / variants.DESCRIPTION)
    variants.write_variants(plain, description, tmp_path)
    first = {path.name: path.read_bytes() for path in (dist / "variants").iterdir()}
    assert first == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_doctor_and_lock_do_not_see_it(dist, tmp_path):
    """The import package muladd is muladd-core's; a distribution of that name beside it changes nothing."""

    def muladd(*arguments, **variables):
        command = [sys.executable, "-m", "muladd", *map(str, arguments)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MULADD_")} | variables
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    (plain,) = dist.glob("*.whl")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path / "site"),
        str(plain),
    ]
    subprocess.run(pip, check=True)
    with_it = {"PYTHONPATH": str(tmp_path / "site")}
    before, after = (
        json.loads(muladd("doctor", "--json").stdout),
        json.loads(muladd("doctor", "--json", **with_it).stdout),
    )
    for report in (before, after):
        for backend in report["backends"].values():
            del backend["load_ms"]
    assert after == before
    locked = tmp_path / "muladd.lock"
    assert muladd("lock", locked).returncode == 0
    checked = muladd("lock", locked, "--check", **with_it)
    assert checked.returncode == 0, checked.stdout
    assert muladd("--version", **with_it, MULADD_LOCK=str(locked)).stdout.startswith("muladd-core ")
