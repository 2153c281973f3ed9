"""Builds the operators of tests/non_elementwise for a device, and runs pytest on them where it is simulated.

python -m tests.wheels.row_kernels FOLDER    # both libraries, for tests/gpu_suite.py on another machine
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.non_elementwise import cpp_library

ROOT = Path(__file__).parents[2]
GENERAL = ROOT / "tests/non_elementwise"


def copy_sources(device, folder):
    """The sources of the kernels, to be built or changed; the folder."""
    for name in ("cpp", device):
        shutil.copytree(GENERAL / name, folder / name)
    return folder


def build_kernels(device, sources, **environment):
    """Build the kernels in a copy of their sources; the library."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-temp", "objects", "--build-lib", "lib"]
    subprocess.run(command, cwd=sources / device, env=os.environ | environment, check=True)
    return sources / device / f"lib/libwaves_{device}.so"


def build_schemas(folder):
    """Build the library with the schemas."""
    return cpp_library.build(GENERAL / "cpp/schema.cpp", folder / "libwaves_schemas.so")


def libraries(device, schemas, kernels):
    """The environment in which tests.non_elementwise.device_library is a library with these kernels."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"WAVES_DEVICE": device, "WAVES_SCHEMAS": str(schemas), "WAVES_KERNELS": str(kernels), "PYTHONPATH": path}


def run_pytest(python, environment, *arguments):
    """Run pytest with another Python, from the root of the repository."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)


def kit(backend):
    """Arguments of pytest: the kit on these operators."""
    library = ("--library", "tests.non_elementwise.device_library", "--backend", backend)
    return ["--pyargs", "opwheel_tools.testing.test_samples", *library, "-m", "not compiles"]  # there is no Triton


def main():
    """Build for CUDA, into a folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as sources:
        shutil.copy(build_kernels("cuda", copy_sources("cuda", Path(sources))), folder)
    build_schemas(folder)


if __name__ == "__main__":
    main()
