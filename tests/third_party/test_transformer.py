"""A backend for a new accelerator: new-backend's project for transformer_ops passes that library's kit as it is."""

import pytest

from tests.portions import first_of

from .environment import IS_WHOLE_KIT

pytestmark = [pytest.mark.wheels, pytest.mark.slow]
pytest.importorskip("transformer_ops")
KIT = ("-k", "test_samples" if IS_WHOLE_KIT else "test_samples and values and float32")


@pytest.mark.parametrize("language", first_of(["cpp", "python"]))
def test_a_backend_passes_the_kit_as_it_is_written(environment, tmp_path, language):
    project = tmp_path / "transformer-ops-acme"
    options = ("acme", "--library", "transformer_ops", "--language", language, "--output", str(project))
    written = environment.run("-m", "opwheel", "new-backend", *options)
    assert written.returncode == 0, written.stderr
    environment.install(project)
    variables = {"TRANSFORMER_OPS_BACKENDS": "acme"}
    status = environment.status("acme", "transformer_ops", **variables)
    assert status["state"] == "loaded", status
    assert {"rms_norm", "rms_norm_backward", "rope", "cross_entropy_rows"} <= set(status["by_reference"])
    environment.passes_the_kit("acme", "transformer_ops", KIT, **variables)
