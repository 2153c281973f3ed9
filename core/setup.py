from opwheel_tools.build import CppLibrary, commands
from setuptools import setup

setup(
    ext_modules=[
        CppLibrary(
            "muladd.libmuladd_schema", ["csrc/schema.cpp"], include_dirs=["src/muladd/include"], exports=["muladd_*"]
        )
    ],
    cmdclass=commands(),
)
