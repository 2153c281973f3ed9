"""Every failure has a stable code, which our exceptions have as ``code``; the documentation is made of this table.

``<library>`` stands for the operator library's name, ``<LIBRARY>`` for the same in capitals. A fix that begins with
"Author:" is for whoever writes the plugin.
"""

from typing import NamedTuple


class ErrorCode(NamedTuple):
    """One row of the table of failures."""

    id: str
    title: str
    cause: str
    fix: str


_TRACEBACK = "`<LIBRARY>_STRICT=1` shows the traceback."
_OTHERS = "Everybody else: disable the plugin in plugins.toml or uninstall it, and tell its author."

_ROWS = (
    ErrorCode(
        "OPWHEEL-E001",
        "no kernel for this device",
        "An operator was called with tensors on a device, or of a layout, for which no loaded backend has a kernel.",
        "Install the backend the message names, or set `<LIBRARY>_FALLBACK=reference` to compute with ATen.",
    ),
    ErrorCode(
        "OPWHEEL-E002",
        "required backend is not loaded",
        "require() named a backend that is not installed, or whose metadata was not taken along into an application, "
        "or that was not loaded.",
        "Do what the message says about that backend; `<library> doctor` shows all of them.",
    ),
    ErrorCode(
        "OPWHEEL-E003",
        "kernel in Python returned something else",
        "ResultError, a RuntimeError: what a function of a backend, or of register_python(), has returned is not what "
        "the operator promises: dtype, shape, strides, device, number of results.",
        "Author: return what the message says is expected. Everybody else: tell the author of the backend that the "
        "message names.",
    ),
    ErrorCode(
        "OPWHEEL-E004",
        "a claim of invariance does not hold",
        "require(..., invariant=...) named a claim that a loaded backend does not keep for an operator: its author "
        "says so, it has registered the operator's reference, or the library claims nothing of the kind.",
        "Require less, or load another backend; `<library> explain` says what holds for each operator on each device.",
    ),
    ErrorCode(
        "OPWHEEL-E010",
        "plugins.toml is not valid",
        "The policy file is no regular file, does not parse, has an unknown key or a value of the wrong type, and is "
        "ignored; or it names a backend or dispatch key that does not exist.",
        "Correct the line that the message names.",
    ),
    ErrorCode(
        "OPWHEEL-E011",
        "environment variable is not valid",
        "An environment variable of the registry has a value it does not know, or names a backend that does not exist. "
        "The value is ignored.",
        "Correct or unset the variable.",
    ),
    ErrorCode(
        "OPWHEEL-E012",
        "environment variable is not known",
        "The environment has a variable that starts with the library's prefix, or with OPWHEEL_, and that nothing "
        "reads: a spelling mistake, or a variable of another program. It has no effect.",
        "Correct, rename or unset the variable.",
    ),
    ErrorCode(
        "OPWHEEL-E020",
        "plugin module cannot be imported",
        "The module behind a plugin's entry point raised while it was imported, or is no longer there, or a folder "
        "that Python looks into first, most often the current one, hides it.",
        'Author: the entry point in `[project.entry-points."<library>.backends"]` names a module of the wheel, and '
        f"`python -c 'import module'` works. {_TRACEBACK} Everybody else: reinstall or uninstall the "
        "distribution that the message names; if a folder hides the module, leave that folder.",
    ),
    ErrorCode(
        "OPWHEEL-E021",
        "plugin has no usable hook",
        "The module has no function opwheel_backend (for another runtime: opwheel_runtime) that is marked with "
        "@hookimpl, or the function raised, or it did not return a Backend (a Runtime).",
        "Author: the module has `@hookimpl def opwheel_backend()`, without parameters, which returns "
        "`Backend(...)` (for "
        f"another runtime `opwheel_runtime()` and `Runtime(...)`). {_TRACEBACK} {_OTHERS}",
    ),
    ErrorCode(
        "OPWHEEL-E022",
        "plugin describes itself wrongly",
        "The entry point is none, or a field of the Backend or Runtime has the wrong type or contradicts it, or it "
        "claims operators, a dispatch key or a requirement that do not exist, or a dispatch key that is not the one of "
        "its device type.",
        'Author: write the field that the message names as it says, such as `device_type="cpu", '
        'dispatch_key="CPU"`, or '
        f'`requires=["torch>=2.10"]`. {_TRACEBACK} {_OTHERS}',
    ),
    ErrorCode(
        "OPWHEEL-E023",
        "two backends of one name",
        "Two installed distributions offer a backend under the same entry point name.",
        "Uninstall one of them.",
    ),
    ErrorCode(
        "OPWHEEL-E024",
        "other backends come first",
        "At a dispatch key each operator goes to the first backend, by preference, that claims it. Nothing was left "
        "for this one; or not all, and it has `libraries=`: a library registers all its operators in one block.",
        "Nothing, or name the one you want first under [policy] prefer in plugins.toml.",
    ),
    ErrorCode(
        "OPWHEEL-E025",
        "metadata of a distribution is damaged",
        "An installed distribution names the plugin group, but its METADATA or entry_points.txt cannot be read. "
        "(Of a line that is no entry point, OPWHEEL-E022 tells.)",
        "Reinstall or uninstall the distribution in the folder that the message names.",
    ),
    ErrorCode(
        "OPWHEEL-E026",
        "one distribution twice",
        "Python finds metadata of two versions of a distribution, of which it takes the first, and the modules need "
        "not be those of that version: an earlier installation was not removed completely.",
        "Uninstall the distribution until none is left, and install it again. An egg-info, which a build leaves among "
        "sources, is not pip's to remove: delete it, or leave that folder.",
    ),
    ErrorCode(
        "OPWHEEL-E030",
        "other ABI number",
        "The backend was built against another version of the C++ SDK.",
        "Install versions of the core and of the backend that belong together. Author: build the backend again, "
        "with the "
        "core's version of opwheel.",
    ),
    ErrorCode(
        "OPWHEEL-E031",
        "requirement not met",
        "A package the backend requires is missing or has another version.",
        "Install the version the message names. Author: `requires=[...]` has only what the backend needs.",
    ),
    ErrorCode(
        "OPWHEEL-E032",
        "other schemas",
        "An operator's arguments or results are not those that the backend was built for: its kernel would take what "
        "arrives for something else. The backend lacks those operators, and has the others; where all that it claims "
        "have changed, it is not loaded. Or a kernel calls an operator that has other ones than the call was written "
        "for: then nothing of the backend is loaded.",
        "Install versions of the core and of the backend that belong together, or build the backend again.",
    ),
    ErrorCode(
        "OPWHEEL-E033",
        "installed versions contradict each other",
        "Found by `<library> doctor`: the framework, the library or a backend that is not disabled requires, in its "
        "metadata, another version of a package than the installed one, or a package that is not installed. pip says "
        "so when it installs; with `--no-deps`, and with other installers, nobody does.",
        "Install versions that belong together, as the message says.",
    ),
    ErrorCode(
        "OPWHEEL-E034",
        "registrations cannot be seen",
        "This release of PyTorch lists the kernels of an operator in other words than this opwheel reads. A backend "
        "that registers more than it claims, or replaces another's kernel, would not be noticed: none is run.",
        "Install a release of PyTorch that this opwheel knows, or a newer opwheel.",
    ),
    ErrorCode(
        "OPWHEEL-E040",
        "this machine cannot use the backend",
        "The backend's probe says that hardware, a driver or a runtime is missing, or PyTorch knows no device of the "
        "backend's device type in this process.",
        "Follow the probe's own advice, if the machine should have the device. The package of a device that is "
        "not PyTorch's "
        "own is imported and calls `torch.utils.rename_privateuse1_backend(name)` and "
        "`torch._register_device_module(name, module)`; the backend is then loaded when it is needed.",
    ),
    ErrorCode(
        "OPWHEEL-E041",
        "probe failed",
        "The backend's probe raised, returned something else than a Probe, or did not finish in time.",
        'Author: the function that `probe=` names returns `Probe(True)` or `Probe(False, "what is missing")`, '
        "in time, and "
        f"does not raise. {_TRACEBACK} {_OTHERS} `<LIBRARY>_PROBE_TIMEOUT=60` waits a minute for a slow probe "
        "instead of ten "
        "seconds.",
    ),
    ErrorCode(
        "OPWHEEL-E050",
        "library cannot be opened",
        "The backend's shared library is missing, damaged, for another machine or needs something that is not there.",
        "Author: the files that `libraries=[...]` names are in the wheel, built for the machine, and linked "
        "with nothing "
        f"that is not there (`ldd`). {_TRACEBACK} Everybody else: reinstall the backend; the message ends with "
        "the loader's "
        "own words.",
    ),
    ErrorCode(
        "OPWHEEL-E051",
        "claimed kernels are not registered",
        "The library opened, but the dispatcher lists no kernel for any operator the backend claims.",
        "Author: the libraries, or the function that `register=` names, register at the Backend's "
        "`dispatch_key=` what "
        f"`operators=` claims. {_TRACEBACK} {_OTHERS}",
    ),
    ErrorCode(
        "OPWHEEL-E052",
        "registration failed",
        "The backend's register function raised; what it had registered was removed again.",
        "Author: the function that `register=` names takes a torch.library.Library and calls its `impl(name, "
        "kernel)`. "
        f"{_TRACEBACK} {_OTHERS}",
    ),
    ErrorCode(
        "OPWHEEL-E053",
        "partial coverage",
        "Some of the operators that the backend claims have no kernel; the others work.",
        "Update the backend: it was built for an older list of operators. Author: register the missing kernels, "
        "or claim "
        "fewer in `operators=[...]`.",
    ),
    ErrorCode(
        "OPWHEEL-E054",
        "kernels nobody claimed",
        "Something was registered in the library's namespace, or a fallback for all operators, that the backend does "
        "not claim or another one serves, or before its claim was accepted: when the plugin was imported, asked or "
        "probed. What the backend's library and register function have registered is removed; calls that reach what "
        "stays raise an error with this code.",
        "Author: only what `libraries=` and `register=` name registers, and only what `operators=` and "
        "`dispatch_key=` claim. "
        f"{_TRACEBACK} {_OTHERS}",
    ),
    ErrorCode(
        "OPWHEEL-E055",
        "loading ends the process",
        "Found by `<library> doctor --deep`: opening the backend's library crashes, aborts or hangs.",
        "Author: load the library under a debugger; static initialisers and the function that `register=` names "
        "run then. "
        f"{_OTHERS}",
    ),
    ErrorCode(
        "OPWHEEL-E060",
        "switched off",
        "The policy, an environment variable or `<LIBRARY>_AUTOLOAD=0` keeps the backend from being loaded.",
        "Enable it there, or call load().",
    ),
    ErrorCode(
        "OPWHEEL-E070",
        "lock file is not valid",
        "`<LIBRARY>_LOCK` is empty, or what it names cannot be read, is no regular file, is larger than 16 MiB or was "
        "not written by `<library> lock`. "
        "Nothing is loaded.",
        "Correct or unset the variable, or write the file again with `<library> lock`.",
    ),
    ErrorCode(
        "OPWHEEL-E071",
        "installation differs from the lock file",
        "A distribution, its files, the fallback or the winner of a dispatch key is not what the lock file says, or "
        "Python would import something else. The import fails.",
        "Install what is locked, or accept what is installed with `<library> lock`.",
    ),
    ErrorCode(
        "OPWHEEL-E072",
        "installation cannot be locked",
        "Something is wrong with a backend, or the files of a distribution are not those of a wheel: edited, "
        "installed in editable mode, or imported from another place.",
        "Do what `<library> doctor` says about it, or reinstall the distribution from a wheel.",
    ),
    ErrorCode(
        "OPWHEEL-E080",
        "a native library cannot be built here",
        "ToolchainError: a compiler, headers, a source or torch are missing, the system is not Linux, or the "
        "compiler refuses a source.",
        "Install or set what the message names; where compiling failed, the compiler's messages stand above.",
    ),
    ErrorCode(
        "OPWHEEL-E081",
        "a tool's library cannot be compiled",
        "CompileError: the conformance kit and the benchmarks compile small libraries of their own when they are "
        "first needed, and there is no compiler, or the folder that keeps them cannot be written.",
        "Install a C++ compiler, or set `CXX` or `XDG_CACHE_HOME`, as the message says.",
    ),
    ErrorCode(
        "OPWHEEL-E082",
        "a project cannot be written",
        "ScaffoldError, of `new-backend` and `new-library`: a name is malformed, reserved or taken, language and "
        "device do not fit together, or the folder is not empty.",
        "Choose what the message offers.",
    ),
    ErrorCode(
        "OPWHEEL-E083",
        "the module opinfos is not right",
        "OpInfosError: a library's module `opinfos` cannot be imported, or names an operator or a field that does "
        "not exist.",
        "Author: correct the module at the place that the message names.",
    ),
    ErrorCode(
        "OPWHEEL-E084",
        "a selection of kernels does not fit",
        "SelectionError, of the backend for ExecuTorch: an operator is not in the file of operators, or a model uses "
        "none of them.",
        "Name operators of the file, or another model.",
    ),
    ErrorCode(
        "OPWHEEL-E090",
        "command line is not valid",
        "UsageError: an option, an operator, a device or a library does not exist, or a package that the command "
        "needs is not installed. The exit code is 2.",
        "Write what the message says; `--help` lists the options.",
    ),
    ErrorCode(
        "OPWHEEL-E091",
        "there is nothing to audit",
        "TargetError: the target is no module, shared library or namespace, or it registers no operator.",
        "Name another target, or with `--import` the module that registers its operators.",
    ),
    ErrorCode(
        "OPWHEEL-E092",
        "the samples for an audit cannot be had",
        "SamplesError: the function that `--samples` names does not exist, raises, or gives something else than "
        "SampleInputs.",
        "Correct the function.",
    ),
    ErrorCode(
        "OPWHEEL-E093",
        "a file holds no recorded calls",
        "CallsFileError: the file that `--record` names was not written by `opwheel audit --record`, or by another "
        "version.",
        "Record the calls again.",
    ),
    ErrorCode(
        "OPWHEEL-E094",
        "a process of an audit ended",
        "WorkerError: the target cannot be loaded, or the process ended before it could run a check.",
        "Import the target by itself; the message ends with what the process said.",
    ),
    ErrorCode(
        "OPWHEEL-E095",
        "a file holds no results",
        "ResultsFileError: what `--compare` names was not written by `<library> bench --json`, or by another version.",
        "Measure again.",
    ),
    ErrorCode(
        "OPWHEEL-E096",
        "an implementation computes something else",
        "WrongResultError: before it is timed, each implementation of a benchmark is compared with float64.",
        "Correct the implementation that the message names; nothing wrong is measured.",
    ),
    ErrorCode(
        "OPWHEEL-E097",
        "there is nothing to judge",
        "UsageError of `opwheel judge`: a name stands for nothing, there are no inputs, the reference raises on them "
        "or is random, or the candidate never ran.",
        "Write what the message says.",
    ),
    ErrorCode(
        "OPWHEEL-E098",
        "what is declared for tests is wrong",
        "DeclarationError of the conformance kit: the reference raises on a sample of the library.",
        "Correct the module `opinfos` of the library, or the reference, which the message names.",
    ),
    ErrorCode(
        "OPWHEEL-E099",
        "a library cannot be exported",
        "ExportError of `opwheel export-kernel`: the backend is not loaded or is for another device than a CPU, the "
        "library imports what a kernel may not, or patchelf is not installed.",
        "Do what the message says.",
    ),
    ErrorCode(
        "OPWHEEL-E100",
        "a kernel for somebody else's operator does not fit",
        "The operator does not exist in this PyTorch or library, its arguments are others than the kernel expects, the "
        "conditions cannot be read, or the library has no kernel on the device for what it needs. Nothing was changed.",
        'Install the backend that the message names, or switch on the others by name: `accelerate_torch("softmax")`.',
    ),
    ErrorCode(
        "OPWHEEL-E101",
        "an operator of others has another owner already",
        "Another library, PyTorch's own `torch._native`, or code that registered a kernel by itself, has the operator "
        "at this dispatch key, or has registered over ours since, so that ours cannot be removed. Nothing was changed.",
        "Switch the other one off first, or leave the operator out.",
    ),
    ErrorCode(
        "OPWHEEL-E102",
        "kernels cannot be switched in the middle of a mode",
        "A dispatch mode, a mode of torch function, a transform of torch.func or torch.compile is active: what is "
        "being traced or recorded would hold kernels of both kinds.",
        "Switch before entering it, or after leaving it.",
    ),
)

ERROR_CODES: dict[str, ErrorCode] = {row.id: row for row in _ROWS}
