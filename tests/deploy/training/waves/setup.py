from opwheel_tools.build import CppLibrary, commands
from setuptools import setup

setup(
    name="waves",
    packages=["waves"],
    package_data={"waves": ["plugins.toml"]},
    ext_modules=[CppLibrary("waves.libwaves_schema", ["schema.cpp"], exports=["waves_*"])],
    cmdclass=commands(),
)
