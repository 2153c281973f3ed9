"""A backend for a new accelerator: new-backend's project for transformer_ops passes that library's kit as it is."""

import textwrap

import pytest

from tests.portions import first_of

from .environment import IS_WHOLE_KIT

pytestmark = [pytest.mark.wheels, pytest.mark.slow]
pytest.importorskip("transformer_ops")
KIT = ("-k", "test_samples" if IS_WHOLE_KIT else "test_samples and (values and float32 or errors)")
ADMITTED = {"TRANSFORMER_OPS_BACKENDS": "acme"}


@pytest.fixture
def written(environment, tmp_path):
    """Writes a project with new-backend; the folder and the variables under which its kernels run on the CPU."""

    def write(language):
        if language == "triton":
            pytest.importorskip("triton")
        project = tmp_path / "transformer-ops-acme"
        options = ("acme", "--library", "transformer_ops", "--language", language, "--output", str(project))
        done = environment.run("-m", "opwheel", "new-backend", *options)
        assert done.returncode == 0, done.stderr
        return project, ADMITTED | ({"TRITON_INTERPRET": "1"} if language == "triton" else {})

    return write


@pytest.mark.parametrize("language", first_of(["cpp", "python", "triton"], 0))
def test_a_backend_passes_the_kit_as_it_is_written(environment, written, language):
    project, variables = written(language)
    environment.install(project)
    status = environment.status("acme", "transformer_ops", **variables)
    assert status["state"] == "loaded", status
    assert {"rms_norm", "rms_norm_backward", "rope", "cross_entropy_rows"} <= set(status["by_reference"])
    environment.passes_the_kit("acme", "transformer_ops", KIT, **variables)


def test_without_a_gpu_and_the_interpreter_triton_s_backend_says_so(environment, written):
    project, _ = written("triton")
    environment.install(project)
    status = environment.status("acme", "transformer_ops", **ADMITTED)
    assert status["state"] == "loaded" or "finds no cuda device" in status["reason"]


@pytest.mark.nightly
def test_the_example_of_triton_s_template_is_a_kernel(environment, written):
    """Put where its page says, by Triton's interpreter, which truncates to bfloat16 where it should round."""
    project, variables = written("triton")
    (kernels,) = project.rglob("kernels.py")
    text = kernels.read_text()
    example = textwrap.dedent(text.partition("::\n\n")[2].partition('"""')[0])
    assert "def softmax(" in example
    text = text.replace("FUNCTIONS: ", f"{example}\n\nFUNCTIONS: ", 1)
    kernels.write_text(text.replace('# "softmax": ...', '"softmax": softmax'))
    environment.install(project)
    status = environment.status("acme", "transformer_ops", **variables)
    assert (status["state"], "softmax" in status["by_reference"]) == ("loaded", False)
    chosen = "test_samples and (values or layouts) and not bfloat16"
    environment.passes_the_kit("acme", "transformer_ops", ("--operators", "softmax", "-k", chosen), **variables)
