"""What is done after another module's import, and names that are imported when they are used."""

import gc
import importlib.util
import sys
import weakref

import opwheel
import opwheel.dispatch
import opwheel.registry
import pytest
from opwheel._import_hooks import after_import, names_from, without_collections


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that nobody has imported yet."""
    name = "opwheel_test_import_hooks"
    (tmp_path / f"{name}.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_every_action_runs_once_after_the_import(module):
    seen = []
    for number in (1, 2):  # two libraries, each with its own
        after_import(module)(lambda number=number: seen.append((number, sys.modules[module].VALUE)))
    assert importlib.util.find_spec(module) is not None
    assert seen == []
    importlib.import_module(module)
    assert seen == [(1, 1), (2, 1)]
    after_import(module)(lambda: seen.append("at once"))
    assert seen[2:] == ["at once"]


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'opwheel' has no attribute 'nothing'"):
        opwheel.nothing  # noqa: B018


def test_all_names_are_there():
    for package in (opwheel, opwheel.registry, opwheel.dispatch):
        for name in package.__all__:
            assert getattr(package, name) is not None


@pytest.mark.parametrize("was_on", [True, False])
def test_no_collections_meanwhile(was_on, module, tmp_path):
    """The collector is as before afterwards, also where an import fails."""
    (tmp_path / f"{module}.py").write_text("import gc\nIS_ON = gc.isenabled()\n")
    (tmp_path / f"{module}_failing.py").write_text("1 / 0\n")
    get = names_from("", {"IS_ON": module, "FAILING": f"{module}_failing"})
    is_on = gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        assert get("IS_ON") is False
        assert gc.isenabled() is was_on
        with pytest.raises(ZeroDivisionError):
            get("FAILING")
        assert gc.isenabled() is was_on
        with without_collections(), without_collections():
            assert not gc.isenabled()
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if is_on else gc.disable)()


def test_frozen_objects_are_not_counted_for_little(monkeypatch):
    """All of them are visited: milliseconds, where a server has frozen PyTorch's before it forks."""
    counted = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(True) or 1)
    is_on, threshold = gc.isenabled(), gc.get_threshold()
    gc.enable()
    try:
        gc.set_threshold(100_000)
        with without_collections():
            pass
        assert not counted
        gc.set_threshold(1)
        with without_collections():
            kept = [[] for _ in range(100)]
        assert counted == [True]
        assert len(kept) == 100
    finally:
        gc.set_threshold(*threshold)
        (gc.enable if is_on else gc.disable)()


class Ring:
    """Refers to itself."""

    def __init__(self):
        self.itself = self


def test_what_is_made_meanwhile_is_not_looked_at_but_can_be_collected():
    gc.collect()
    with without_collections():
        kept, garbage = [[] for _ in range(5000)], weakref.ref(Ring())
        before = [one["collections"] for one in gc.get_stats()]
    kept.append([])
    assert [one["collections"] for one in gc.get_stats()] == before
    gc.collect()
    assert garbage() is None


def test_what_is_frozen_stays_so():
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with without_collections():
            kept = [[] for _ in range(5000)]  # enough to be worth a look at what is frozen
        assert gc.get_freeze_count() == frozen > 0
        assert len(kept) == 5000
    finally:
        gc.unfreeze()
