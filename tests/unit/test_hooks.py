"""Hooks: a plain one is called without pluggy, every other one by pluggy, and both say the same."""

from types import ModuleType, SimpleNamespace

import pluggy
import pytest
from opwheel import hookimpl
from opwheel.registry.discovery import _call_hook
from opwheel.registry.hooks import plain_hook
from opwheel.registry.pluggy_hooks import call_through_pluggy

HOOK = "opwheel_backend"


def module(source):
    made = ModuleType("plugin")
    exec(f"import functools\nfrom opwheel import hookimpl\n{source}", vars(made))
    return made


def answer(call, plugin):
    try:
        return call(plugin, "acme", HOOK)
    except Exception as error:
        return type(error), str(error).replace("plugin", "")


PLAIN = {
    "returns": "@hookimpl\ndef opwheel_backend(): return 3",
    "returns None": "@hookimpl\ndef opwheel_backend(): ...",
    "raises": "@hookimpl\ndef opwheel_backend(): raise OSError('no driver')",
    "other functions": "def other(x): ...\n@hookimpl\ndef opwheel_backend(): return other",
}
OTHER = {
    "no hook": "def opwheel_backend(): return 3",
    "misspelt": "@hookimpl\ndef opwheel_backends(): return 3",
    "misspelt too": "@hookimpl\ndef opwheel_backend(): return 3\n@hookimpl\ndef muladd_backend(): ...",
    "two names": "@hookimpl\ndef opwheel_backend(): return 3\nother = opwheel_backend",
    "both hooks": "@hookimpl\ndef opwheel_backend(): return 3\n@hookimpl\ndef opwheel_runtime(): return 4",
    "of another name": "@hookimpl(specname='opwheel_backend')\ndef describe(): return 3",
    "first": "@hookimpl(tryfirst=True)\ndef opwheel_backend(): return 3",
    "wrapper": "@hookimpl(wrapper=True)\ndef opwheel_backend(): return (yield)",
    "parameter": "@hookimpl\ndef opwheel_backend(config): return 3",
    "default": "@hookimpl\ndef opwheel_backend(x=3): return x",
    "variable parameters": "@hookimpl\ndef opwheel_backend(*args, **kwargs): return args, kwargs",
    "keyword": "@hookimpl\ndef opwheel_backend(*, x=3): return x",
    "wrapped": "def inner(config): ...\n@hookimpl\n@functools.wraps(inner)\ndef opwheel_backend(): return 3",
    "class": "class Plugin:\n    @hookimpl\n    def opwheel_backend(self): return 3\nopwheel_backend = Plugin",
    "options are none": "@hookimpl\ndef opwheel_backend(): return 3\nopwheel_backend.opwheel_impl = 7",
}


@pytest.mark.parametrize("source", PLAIN.values(), ids=PLAIN)
def test_plain_hooks_do_without_pluggy(source, monkeypatch):
    expected = answer(call_through_pluggy, module(source))
    monkeypatch.setattr(pluggy, "PluginManager", None)
    found = answer(_call_hook, module(source))
    assert str(found).partition(" at 0x")[0] == str(expected).partition(" at 0x")[0]


@pytest.mark.parametrize("source", OTHER.values(), ids=OTHER)
def test_others_are_called_by_pluggy(source):
    assert plain_hook(module(source), HOOK) is None
    assert answer(_call_hook, module(source)) == answer(call_through_pluggy, module(source))


def test_what_is_no_module_is_called_by_pluggy():
    plugin = SimpleNamespace(opwheel_backend=hookimpl(lambda: 3))
    assert _call_hook(plugin, "acme", HOOK) == [3]


@pytest.mark.parametrize("options", [{}, {"tryfirst": True}, {"specname": "other"}])
def test_marks_are_pluggy_s(options):
    def hook(): ...

    def marked(decorator):
        return vars(decorator(**options)(hook) if options else decorator(hook))["opwheel_impl"]

    assert marked(hookimpl) == marked(pluggy.HookimplMarker("opwheel"))
    assert hookimpl()(hook) is hook
