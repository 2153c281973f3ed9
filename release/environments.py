"""Makes the Python environments of this repository. A step is done again when something that it is made of has changed.

    python release/environments.py .venv installed docs            these steps, and all that they need
    python release/environments.py .venv-sycl --from .venv installed
    python release/environments.py .venv installed --dry-run       print what would be run

The file `.venv/.STEP` is as old as the step's last run. The Makefile calls this for its targets of such names.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TORCH = "torch==2.13.0"
TORCHVISION = "torchvision==0.28.0"
EXECUTORCH = "executorch==1.5.1"
TRANSFORMER = "libraries/transformer"
# Python compiles what is imported when it is imported; pip would compile all of PyTorch's modules, one after the other.
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
# Steps whose result is the folder of that name in the environment, which they replace.
FOLDERS = ("audit", "other-torch")
BUILD_SETTINGS = "DIST_EXTRA_CONFIG"
PROJECTS = [Path("pyproject.toml")]


class StepError(Exception):
    """A step cannot be done; the message says why."""


@dataclass
class Environment:
    """A virtual environment; `other` is the one whose compiled framework it gets as wheels."""

    folder: Path
    torch: str = TORCH
    is_dry: bool = False
    other: Environment | None = None
    done: dict[str, bool] = field(default_factory=dict)
    """The steps that were looked at, and whether they had to be done."""

    @property
    def python(self) -> str:
        return str(self.folder / "bin/python")

    def stamp(self, name: str) -> Path:
        return self.folder / (name if name in FOLDERS else f".{name}")

    def run(self, *command: str) -> None:
        """Run a command, with dots while it prints nothing. Raises `StepError`."""
        if self.is_dry:
            print(shlex.join(command))
            return
        variables = {
            key: os.environ[key] for key in os.environ if key not in ("PYTHONDONTWRITEBYTECODE", BUILD_SETTINGS)
        }
        if self.other is not None:  # folders of its own for what setuptools builds from the same sources
            variables[BUILD_SETTINGS] = str((self.folder / "build.cfg").resolve())
        if subprocess.run([sys.executable, "release/progress.py", *command], env=variables, check=False).returncode:
            raise StepError(f"{self.folder}: this failed: {shlex.join(command)}")

    def install(self, *arguments: str) -> None:
        """What pip installs; groups of pyproject.toml as ("--group", name)."""
        self.run(self.python, *PIP, *arguments)

    def build(self, source: str, *options: str) -> None:
        """A project of the repository. An isolated build would download another torch, with its CUDA packages."""
        self.install("--no-build-isolation", *options, f"./{source}")

    def keep_header_times(self, include: str, package: str) -> None:
        """Headers keep their times, so that ninja compiles only what includes one that changed."""
        if not self.is_dry:
            (site,) = (self.folder / "lib").glob("python*/site-packages")
            shutil.copytree(include, site / package / "include", dirs_exist_ok=True)

    def _do(self, step: Step, stamp: Path) -> None:
        if step.title:
            print(step.title, flush=True)
        step.do(self)
        stamp.touch()

    def make(self, name: str) -> bool:
        """Do a step and all that it needs, where it is not done; whether it had to be."""
        if name not in self.done:
            step = step_of(name, self)
            for one in step.after:
                self.make(one)
            changed = [self.make(one) for one in step.needs]
            newer = [*step.sources, *map(self.stamp, step.needs)]
            if step.of_other and self.other is not None:
                changed += [self.other.make(one) for one in step.of_other]
                newer += map(self.other.stamp, step.of_other)
            if self.is_dry:
                self.done[name] = any(changed) or _is_older(self.stamp(name), newer)
                if self.done[name]:
                    step.do(self)
            else:
                with _alone(self.folder / (f".lock-{name}" if name in FOLDERS else ".lock")):
                    self.done[name] = _is_older(self.stamp(name), newer)
                    if self.done[name]:
                        self._do(step, self.stamp(name))
        return self.done[name]


@dataclass(frozen=True)
class Step:
    """How something is installed.

    `needs`: steps that come first, and after which this one is done again; `of_other`: the same of the other
    environment; `after`: steps that come first, nothing else; `sources`: files, after whose change it is done again.
    """

    do: Callable[[Environment], None]
    needs: tuple[str, ...] = ()
    sources: Iterable[Path] = ()
    after: tuple[str, ...] = ()
    of_other: tuple[str, ...] = ()
    title: str = ""


def _is_older(stamp: Path, files: Iterable[Path]) -> bool:
    return not stamp.exists() or any(file.exists() and file.stat().st_mtime > stamp.stat().st_mtime for file in files)


def sources_of(folder: str) -> list[Path]:
    """What a project is built from: no tests, and nothing that was built."""
    left_out = {f"{folder}/build", f"{folder}/tests"}
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [
            one
            for one in folders
            if f"{place}/{one}" not in left_out and one != "__pycache__" and not one.endswith(".egg-info")
        ]
        found += [Path(place, one) for one in files if not one.endswith((".so", ".pyi"))]
    return found


def sdk_sources() -> list[Path]:
    """What a backend is compiled from, apart from its own folder."""
    tools, framework = "tools/src/opwheel_tools", "framework/src/opwheel/_build"
    folders = (f"{tools}/include", f"{tools}/build", framework, "core/src/muladd/include")
    return [path for one in folders for path in Path(one).rglob("*") if path.suffix in (".h", ".cuh", ".py", ".cpp")]


def backends() -> list[str]:
    """muladd's, as plugins.toml has them. The SYCL runtime takes 1.7 GB: that one is in an environment of its own."""
    tables = r'^\[backends.*?^directory = "backends/(.*?)"$'
    found = re.findall(tables, Path("plugins.toml").read_text(), re.MULTILINE | re.DOTALL)
    return [one for one in found if one != "sycl"]


def _groups(*names: str) -> Callable[[Environment], None]:
    return lambda env: env.install(*(word for name in names for word in ("--group", name)))


def _new_environment(*groups: str) -> Callable[[Environment], None]:
    def do(env: Environment) -> None:
        print(
            f"{env.folder}: Python environment with {env.torch} (half a minute, and a download of 1.2 GB)", flush=True
        )
        env.run(sys.executable, "-m", "venv", str(env.folder))
        env.install("pip==26.3")
        env.install(*shlex.split(env.torch))
        _groups(*groups)(env)
        if env.other is not None and not env.is_dry:
            (env.folder / "build.cfg").write_text("[build]\nbuild_base = build/sycl\n")

    return do


def _project(source: str, package: str = "") -> Callable[[Environment], None]:
    """Build a project; of one with headers, `package` is where they are."""

    def do(env: Environment) -> None:
        env.build(source)
        if package:
            env.keep_header_times(f"{source}/src/{package}/include", package)

    return do


def _framework(env: Environment) -> None:
    env.build("framework")
    if not env.is_dry and not list(
        (env.folder / "lib").glob("python*/site-packages/opwheel/native/libopwheel_autograd_*.so")
    ):
        raise StepError(
            "native Autograd was not built; the compiler's messages: cd framework && python setup.py build_ext"
        )


def _wheel(source: str, distribution: str, package: str = "") -> Callable[[Environment], None]:
    """Install what is compiled in the other environment: the same PyTorch is in both."""

    def do(env: Environment) -> None:
        assert env.other is not None
        wheels = env.folder / "wheels" / source
        if not env.is_dry:
            shutil.rmtree(wheels, ignore_errors=True)
        command = ("-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
        env.other.run(env.other.python, *command, "--wheel-dir", str(wheels), f"./{source}")
        env.run(env.python, "-m", "pip", "uninstall", "--quiet", "--yes", distribution)
        env.install(*([str(wheels / "*.whl")] if env.is_dry else map(str, wheels.glob("*.whl"))))
        if package:
            env.keep_header_times(f"{source}/src/{package}/include", package)

    return do


def _audit(env: Environment) -> None:
    """A library to audit. It is built for CUDA, and where PyTorch is not every import of it raises: in a folder."""
    if not env.is_dry:
        shutil.rmtree(env.stamp("audit"), ignore_errors=True)
    env.install("--no-deps", "--target", str(env.stamp("audit")), TORCHVISION)


def _other_torch(env: Environment) -> None:
    """PyTorch's build for CUDA, for tests of the same wheels on another torch and on simulated devices: 5 GB."""
    folder = env.stamp("other-torch")
    new = folder.with_name(f"{folder.name}.new")
    for old in (folder, new):
        if not env.is_dry:
            shutil.rmtree(old, ignore_errors=True)
    env.run(env.python, "tests/wheels/other_torch.py", str(new))
    if not env.is_dry:
        new.rename(folder)


def _executorch(env: Environment) -> None:
    """Without ExecuTorch's other requirements: several hundred megabytes for backends that are not used here."""
    env.install("--group", "deploy")
    env.install("--no-deps", EXECUTORCH)


def _exported(env: Environment) -> None:
    """Models are exported again when muladd or the examples have changed."""
    for complete in [] if env.is_dry else (env.folder / "deploy").glob("*/.complete"):
        complete.unlink()


def _sycl_backend(env: Environment) -> None:
    env.build("backends/sycl")
    env.run(env.python, "tests/simulated_xpu/__init__.py")


def _nothing(env: Environment) -> None:
    """For a name of several steps."""


def step_of(name: str, env: Environment) -> Step:
    """The step of that name in that environment. Raises `StepError` if there is none."""
    if env.other is None and (found := re.fullmatch("(backend|runtime)-(.+)", name)):
        kind, folder = found[1], f"backends/{found[2]}"
        sources = [*sources_of(folder), *sdk_sources()]
        if kind == "runtime":
            return Step(lambda env: env.build(folder, "--no-deps"), ("executorch",), sources, after=("core",))
        after = ("core", "tools") if folder == "backends/cuda" else ("core",)
        return Step(_project(folder), ("dependencies",), sources, after, title=f"muladd-{found[2]}: kernels")
    steps = _main_steps() if env.other is None else _sycl_steps()
    if name not in steps:
        raise StepError(f"there is no step {name!r}; known are {', '.join(steps)}, backend-NAME and runtime-NAME")
    return steps[name]


def _main_steps() -> dict[str, Step]:
    cpu, triton = f"{TRANSFORMER}/backends/cpu", f"{TRANSFORMER}/backends/triton"
    examples = [path for pattern in ("digits.py", "deployment/**/*.py") for path in Path("examples").glob(pattern)]
    kernels = (*(f"backend-{one}" for one in backends()), "transformer-cpu", "transformer-triton")
    return {
        "dependencies": Step(_new_environment("build", "demo"), sources=[*PROJECTS, Path("framework/pyproject.toml")]),
        "unit": Step(_groups("unit"), ("demo",), PROJECTS),
        "tools": Step(_groups("cuda", "test", "plugins", "models", "hosts", "lint"), ("dependencies",), PROJECTS),
        "release": Step(_groups("release"), ("tools",), PROJECTS),
        "docs": Step(_groups("docs"), ("installed",), PROJECTS),
        "executorch": Step(_executorch, ("tools",), PROJECTS),
        "audit": Step(_audit, ("dependencies",), PROJECTS),
        "other-torch": Step(_other_torch, sources=[Path("tests/wheels/other_torch.py")], after=("dependencies",)),
        "framework": Step(
            _framework,
            ("dependencies",),
            sources_of("framework"),
            title="opwheel: the framework (native Autograd for the installed torch: half a minute)",
        ),
        "opwheel-tools": Step(
            _project("tools", "opwheel_tools"),
            ("framework",),
            sources_of("tools"),
            title="opwheel-tools: C++ SDK, build, conformance kit",
        ),
        "core": Step(
            _project("core", "muladd"),
            ("opwheel-tools",),
            [Path("plugins.toml"), *sources_of("core")],
            title="muladd-core: the operators' schemas and derivatives (one C++ file)",
        ),
        "transformer-core": Step(
            _project(f"{TRANSFORMER}/core", "transformer_ops"),
            ("opwheel-tools",),
            sources_of(f"{TRANSFORMER}/core"),
            title="transformer-ops-core: the operators' schemas and derivatives",
        ),
        "transformer-cpu": Step(
            _project(cpu),
            ("transformer-core",),
            [*sources_of(cpu), *sdk_sources()],
            title="transformer-ops-cpu: kernels for three instruction sets",
        ),
        "transformer-triton": Step(
            _project(triton),
            ("transformer-core",),
            sources_of(triton),
            title="transformer-ops-triton: kernels in Python",
        ),
        "exported": Step(_exported, ("installed", "executorch"), examples),
        "demo": Step(_nothing, ("core", "backend-cpu")),
        "installed": Step(_nothing, ("tools", "audit", "core", *kernels)),
    }


def _sycl_steps() -> dict[str, Step]:
    simulated = [path for path in Path("tests/simulated_xpu").iterdir() if path.name != "__pycache__"]
    backend = [*sources_of("backends/sycl"), *sdk_sources(), *simulated]
    return {
        "dependencies": Step(
            _new_environment("build", "test", "sycl"), sources=[*PROJECTS, Path("framework/pyproject.toml")]
        ),
        "framework": Step(_wheel("framework", "opwheel"), ("dependencies",), of_other=("framework",)),
        "opwheel-tools": Step(
            _wheel("tools", "opwheel-tools", "opwheel_tools"), ("framework",), of_other=("opwheel-tools",)
        ),
        "core": Step(_wheel("core", "muladd-core", "muladd"), ("opwheel-tools",), of_other=("core",)),
        "installed": Step(_sycl_backend, ("core",), backend),
    }


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Wait until no other process installs there: pip must not install into an environment twice at a time."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> str | None:
    """Do the steps; what failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", nargs="+", help="such as installed, docs, backend-cpu")
    parser.add_argument("--from", type=Path, dest="other", help="the environment that the framework is compiled in")
    parser.add_argument("--torch", default=TORCH, help="what pip installs")
    parser.add_argument("--dry-run", action="store_true")
    chosen = parser.parse_args()
    os.chdir(Path(__file__).parents[1])
    other = chosen.other and Environment(chosen.other, chosen.torch, chosen.dry_run)
    env = Environment(chosen.folder, chosen.torch, chosen.dry_run, other)
    try:
        for name in chosen.steps:
            env.make(name)
    except StepError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())
