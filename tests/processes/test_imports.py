"""What an import does and leaves alone, each in a Python that has imported nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import opwheel

IMPORTS_NOTHING = """
import sys, opwheel, opwheel.commands, opwheel.scripts
from pathlib import Path
print({name.split(".")[0] for name in sys.modules} & {"torch", "muladd", "muladd_cpu"})
print("torch" in Path("/proc/self/maps").read_text())
"""

# Everything that the framework has a name for, beside a PyTorch that is there already.
OPENS_NOTHING = """
import ctypes, importlib, sys, torch
from pathlib import Path

def libraries():
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    # Extension modules are Python's.
    return {path for path in mapped if ".so" in path and ".cpython-" not in path and ".abi3." not in path}

opened, operators = libraries(), set(torch._C._dispatch_get_all_op_names())
import opwheel
for package in (opwheel, importlib.import_module("opwheel.registry"), importlib.import_module("opwheel.dispatch")):
    for name in package.__all__:
        getattr(package, name)
print({name for name in sys.modules if name.startswith("muladd")})
print({path for path in libraries() - opened if "/torch/" not in path})
print(set(torch._C._dispatch_get_all_op_names()) - operators)
"""


# What tools alone need of the libraries' operators is not imported with them.
WITHOUT_TOOLS = """
import sys, muladd, transformer_ops
print(sorted(name for name in sys.modules if name.startswith("opwheel_tools") or ".opinfos" in name))
"""

# Of what PyTorch has imported already, some takes long to use.
IMPORTS_WHAT_IT_NEEDS = """
import gc, importlib.metadata, sys, torch
importlib.metadata.distributions = importlib.metadata.Distribution.metadata = None  # an object, or a README, for each
before = set(sys.modules)
import muladd
print(muladd.backends()["cpu"].state, gc.isenabled())
print(sorted(name for name in set(sys.modules) - before if name.split(".")[0] not in ("muladd", "opwheel")))
print(sorted(name for name in sys.modules if name.startswith("opwheel.")))
"""
# Imported by the calls, or the errors, that need them.
LATER = {
    *("_torch.names", "_torch.private.compiling", "memory.huge_pages"),
    *("dispatch.autograd", "dispatch.backend_select", "dispatch.decompositions", "dispatch.derivatives.plan"),
    *("dispatch.kernel_errors", "dispatch.overlap", "dispatch.results", "dispatch.stride_sums"),
    *("dispatch.tensor_iterator", "dispatch.inductor", "dispatch.rules.rows", "dispatch.rules.elementwise.reference"),
    *("registry.absence", "registry.callees", "registry.devices", "registry.error_codes", "registry.explanation"),
    *("registry.hiding", "registry.installed", "registry.lock", "registry.no_kernel", "registry.pluggy_hooks"),
    *("registry.runtimes",),
}


def printed_by(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_importing_the_framework_has_no_effect():
    """No library, no backend, no shared library but Python's own: not even torch."""
    assert printed_by(IMPORTS_NOTHING) == ["set()", "False"]


def test_all_of_the_framework_opens_nothing():
    """No library of operators, no shared library but torch's, no operator."""
    assert printed_by(OPENS_NOTHING) == ["set()", "set()", "set()"]


def test_libraries_do_without_tools():
    assert printed_by(WITHOUT_TOOLS) == ["[]"]


def test_an_import_brings_nothing_but_what_it_needs():
    """Beside PyTorch, which imports most of Python's library: no pluggy, no packaging, no parser of TOML."""
    state, others, own = printed_by(IMPORTS_WHAT_IT_NEEDS, MULADD_BACKENDS="cpu")
    assert state == "loaded True"  # the garbage collector is on again
    assert others == "['muladd_cpu']"
    assert [name for name in LATER if f"'opwheel.{name}'" in own] == []


def test_what_is_imported_later_has_these_names():
    folder = Path(opwheel.__file__).parent
    assert [name for name in LATER if not (folder / f"{name.replace('.', '/')}.py").is_file()] == []


def test_a_plugin_s_module_does_without_torch():
    code = "import sys; from opwheel import Backend, Probe, hookimpl; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_compiler_is_told_even_if_somebody_asked_before_whether_it_is_there():
    """Looking for a module is not importing it."""
    code = (
        "import importlib.util, sys, torch, muladd\n"
        "if 'torch._dynamo' in sys.modules: sys.exit('torch imports its compiler at once')\n"
        "assert importlib.util.find_spec('torch._dynamo') is not None\n"
        "x = torch.ones(3)\n"
        "compiled = torch.compile(lambda a: muladd.mul(a, a), backend='eager', fullgraph=True)\n"
        "assert torch.equal(compiled(x), x)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_an_old_setuptools_is_told_in_one_sentence():
    """A virtual environment of Python 3.10 or 3.11 begins with one, and pip does not look without build isolation."""
    code = "import sys; sys.modules['setuptools.command.bdist_wheel'] = None; import opwheel_tools.build"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: setuptools ")
    assert "pip install --upgrade 'setuptools>=80'" in done.stderr.splitlines()[-1]
