"""The mapping of backends as people see it, whatever plugins have called themselves."""

from opwheel.registry import Backend, BackendStatus, Probe, State
from opwheel.registry.table import Backends

CPU = BackendStatus("cpu", State.LOADED, distribution="muladd-cpu", version="0.1.0", dispatch_key="CPU")


def test_text_and_html() -> None:
    hostile = Backends({"<b>": CPU._replace(reason="line\nbreak & \x1b[31m"), "cpu": CPU})
    text, html = repr(hostile), hostile._repr_html_()
    assert [line.split()[:4] for line in text.splitlines()[1:]] == [
        ["<b>", "loaded", "CPU", "muladd-cpu"],
        ["cpu", "loaded", "CPU", "muladd-cpu"],
    ]
    assert "\x1b" not in text + html
    assert "&lt;b&gt;" in html
    assert "line break &amp;" in html


def test_nothing_is_installed() -> None:
    assert repr(Backends()) == "no backend is installed"
    assert Backends()._repr_html_() == "<p>no backend is installed</p>"


def test_records_of_plugins_show_their_fields() -> None:
    assert repr(Probe(False, "no driver")) == "Probe(ok=False, reason='no driver', fix='')"
    assert repr(Backend("acme", "cpu", "CPU", register=print)).startswith(
        "Backend(name='acme', device_type='cpu', dispatch_key='CPU', libraries=()"
    )
