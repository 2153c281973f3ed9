from opwheel_tools.build import CppLibrary, commands
from setuptools import setup

setup(
    ext_modules=[
        CppLibrary(
            "transformer_ops.libtransformer_ops_schema",
            ["csrc/schema.cpp"],
            include_dirs=["src/transformer_ops/include"],
            exports=["transformer_ops_*"],
        )
    ],
    cmdclass=commands(),
)
