"""Fresh environments that have what this one has, and what a test installs besides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

# Of the conformance kit what depends most on a backend's own code. TEST_WHOLE_KIT=1 (make test-third-party) runs all.
IS_WHOLE_KIT = os.environ.get("TEST_WHOLE_KIT") == "1"
KERNEL_TESTS = "test_layouts or test_special or test_refuses"
# Where it was promised, a build fails without it.
HAS_SYCL = any(found.name == "intel-sycl-rt" for found in metadata.distributions()) or (
    "sycl" in os.environ.get("MULADD_REQUIRE", "").split(",")
)


class Environment:
    """A virtual environment in which the released wheels of this one are visible, too."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        (packages / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def install(self, *projects: Path) -> None:
        """Build each project's wheel and install it, as a user would; each may need the ones before."""
        for project in projects:
            options = ["--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps"]
            command = [sys.executable, "-m", "pip", "--python", str(self.python), "install", *options, str(project)]
            built = subprocess.run(command, capture_output=True, text=True, check=False)
            assert built.returncode == 0, built.stdout + built.stderr

    def run(
        self, *arguments: str | Path, cwd: Path | None = None, timeout: int = 1200, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run this environment's Python."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MULADD_")}
        return subprocess.run(
            [self.python, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            cwd=cwd,
            env={**inherited, **variables},
        )

    def evaluate(self, code: str, cwd: Path | None = None, **variables: str) -> str:
        """What the code prints."""
        result = self.run("-c", code, cwd=cwd, **variables)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def status(self, backend: str, library: str = "muladd", **variables: str) -> dict[str, object]:
        """What became of a backend."""
        code = f"import json, {library}; print(json.dumps({library}.backends()[{backend!r}].as_json()))"
        answer: dict[str, object] = json.loads(self.evaluate(code, **variables).splitlines()[-1])
        return answer

    def passes_the_kit(
        self, backend: str, library: str = "muladd", options: Sequence[str] = (), **variables: str
    ) -> None:
        """Run the conformance kit on the backend alone."""
        chosen = options or (["--whole-kit"] if IS_WHOLE_KIT else ["-k", KERNEL_TESTS])
        result = self.run(
            *("-m", "pytest", "--pyargs", "opwheel_tools.testing", "--library", library, "--backend", backend),
            *("-q", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning", *chosen),
            **{f"{library.upper()}_REQUIRE": backend, **variables},
        )
        assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
        assert "passed" in result.stdout.splitlines()[-1]
