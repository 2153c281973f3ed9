"""Builds the schema library with muladd's own extension builder, which is not installed yet: it is taken from src/."""

import importlib.util
import sys
from pathlib import Path

from setuptools import setup

spec = importlib.util.spec_from_file_location(
    "opwheel_build", Path(__file__).parent / "src/muladd/cpp_extension/__init__.py"
)
cpp_extension = sys.modules["opwheel_build"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cpp_extension)

setup(
    ext_modules=[cpp_extension.CppLibrary("muladd.libmuladd_schema", ["csrc/schema.cpp"], exports=["muladd_*"])],
    cmdclass=cpp_extension.commands(),
)
