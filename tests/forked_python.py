"""Python programs in processes that have PyTorch already: its import takes most of a second, many tests start one.

A server, which this file is when it runs as a program, imports PyTorch and what commands need, and forks a child for
each program. A child has the environment, the folder and the arguments that it is asked to have, imports all else
itself, and ends at once, unless it is asked to end as Python does: that takes four times as long as all the rest,
because it visits every object of PyTorch.

Not for what PyTorch reads once, when it is imported: ``OMP_NUM_THREADS`` for example.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


class Server:
    """Starts children, one at a time."""

    def __init__(self) -> None:
        # Children have their own PYTHONPATH, and what the server imports must not come from one.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self.close)

    def run(
        self,
        *arguments: object,
        environment: Mapping[str, str] = os.environ,
        cwd: Path | None = None,
        finalize: bool = False,
        timeout: int = 300,
    ) -> subprocess.CompletedProcess[str]:
        """What ``subprocess.run`` gives for ``python`` with the arguments: ``[-W ignore]``, ``-c code``, ``-m module``
        or a file, and the program's own."""
        given = [str(argument) for argument in arguments]
        with tempfile.TemporaryDirectory() as folder:
            out, err = (Path(folder, name) for name in ("stdout", "stderr"))
            request = {
                "arguments": given,
                "environment": dict(environment),
                "cwd": str(cwd or Path.cwd()),
                "finalize": finalize,
                "timeout": timeout,
                "stdout": str(out),
                "stderr": str(err),
            }
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            texts = (file.read_text(errors="replace") for file in (out, err))
            return subprocess.CompletedProcess([sys.executable, *given], code, *texts)

    def close(self) -> None:
        """End the server."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@cache
def server() -> Server:
    """The server of this process, started when it is first needed."""
    return Server()


def _serve() -> None:
    import packaging.requirements  # noqa: F401
    import pluggy  # noqa: F401
    import torch  # noqa: F401
    from torch.utils import backend_registration  # noqa: F401

    del sys.path[0]  # this file's folder
    gc.collect()
    gc.freeze()  # the children need not visit PyTorch's objects when they end
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            if not request["finalize"]:
                gc.unfreeze()  # what asks whether objects are frozen counts them
            code = _become(request)
            if not request["finalize"]:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
            sys.exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(request: Mapping[str, Any]) -> int:
    """Be the program; its exit code."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    signal.alarm(request["timeout"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.orig_argv = [sys.executable, *request["arguments"]]
    try:
        _run(request["arguments"])
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _run(arguments: list[str]) -> None:
    while arguments[0] == "-W":
        _, action, *arguments = arguments
        warnings.simplefilter(action)
        sys.warnoptions.append(action)
    kind, *rest = arguments
    if kind == "-c":
        code, *rest = rest
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest]
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(code, "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        module, *rest = rest
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = ["-m", *rest]  # as long as the module is not found
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(kind).parent))
        sys.argv = [kind, *rest]
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    _serve()
