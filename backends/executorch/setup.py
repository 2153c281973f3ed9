"""Builds the library with CMake, as ExecuTorch's package wants it, and writes custom_ops.yaml from the schemas."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import muladd
import opwheel_tools
from opwheel_tools.build import commands
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent


def load_module(path):
    """Import one module of the package that is being built."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_executorch():
    """The installed package's folder."""
    spec = importlib.util.find_spec("executorch.version")
    if spec is None:
        raise SystemExit("muladd-executorch: executorch is not installed here; pip install 'executorch>=1.5,<1.6'")
    return Path(spec.origin).parent


class CMakeBuild(build_ext):
    """``build_ext`` that calls CMake."""

    def get_ext_filename(self, fullname):
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext):
        output = Path(self.get_ext_fullpath(ext.name)).resolve()
        output.parent.mkdir(parents=True, exist_ok=True)
        custom_ops_yaml = load_module(HERE / "src/muladd_executorch/_custom_ops_yaml.py")
        (output.parent / "custom_ops.yaml").write_text(custom_ops_yaml.yaml_text(muladd.library.schemas))

        build_dir = Path(self.build_temp).resolve()
        # The tools that pip installed beside this Python, which may not be on PATH.
        beside = str(Path(sys.executable).parent)
        cmake, ninja = (shutil.which(tool, path=beside) or tool for tool in ("cmake", "ninja"))
        options = {
            "CMAKE_MAKE_PROGRAM": ninja,
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_PREFIX_PATH": find_executorch(),
            "CMAKE_LIBRARY_OUTPUT_DIRECTORY": output.parent,
            "MULADD_INCLUDE": muladd.get_include(),
            "OPWHEEL_INCLUDE": opwheel_tools.get_include(),
        }
        definitions = [f"-D{key}={value}" for key, value in options.items()]
        subprocess.run([cmake, "-S", HERE, "-B", build_dir, "-G", "Ninja", *definitions], check=True)
        subprocess.run([cmake, "--build", build_dir], check=True)


setup(
    ext_modules=[Extension("muladd_executorch.libmuladd_executorch", sources=[])],
    cmdclass=commands() | {"build_ext": CMakeBuild},
)
