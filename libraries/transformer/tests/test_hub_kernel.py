"""transformer_ops as a kernel of Hugging Face's Hub, loaded from a folder, beside the installed library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformer_ops
from opwheel_tools.export import ExportError, Kernel, export_kernel
from opwheel_tools.export.shared_libraries import find_patchelf
from torch.testing import assert_close

from .recording import Operators

kernels = pytest.importorskip("kernels", reason="kernels is not installed")
pytestmark = pytest.mark.skipif(find_patchelf() is None, reason="patchelf is not installed")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    folder = tmp_path_factory.mktemp("kernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        written = export_kernel(transformer_ops.library, "cpu", Path(folder.name))
    return written._replace(folder=folder.parent / written.folder)


@pytest.fixture(scope="module")
def kernel(written: Kernel) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield kernels.get_local_kernel(written.folder.parents[1])


def test_it_computes_as_the_installed_library(kernel: Any, written: Kernel) -> None:
    x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(8)
    with Operators(written.id) as called:
        y = kernel.rms_norm(x, weight)
    assert called.counts == {"rms_norm": 1}
    expected = transformer_ops.rms_norm(x, weight)
    assert torch.equal(y, expected)
    given = torch.autograd.grad(y.sum(), x)
    assert_close(given, torch.autograd.grad(expected.sum(), x))
    assert [kernel.backends()[name].state for name in kernel.backends()] == ["loaded"]
    assert "layers" in kernel.__all__


def test_its_own_checks_pass(written: Kernel) -> None:
    from kernels._rust import Digest, DigestAlgorithm, Metadata

    metadata = Metadata.read_from_file(written.folder / "metadata.json")
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, written.folder))
    assert (metadata.id, str(metadata.name), metadata.license) == (written.id, "transformer-ops", "bsd-3-clause")
    assert written.folder.name.startswith("torch-stable-abi210-cpu-")


def test_its_libraries_are_as_the_hub_asks(written: Kernel) -> None:
    abi = pytest.importorskip("kernel_abi_check", reason="kernel-abi-check is not installed")
    for file in written.folder.rglob("*.so"):
        assert abi.ObjectFile(file).check_python_abi("3.9") == []


def test_versions_that_look_for_an_inner_package(kernel: Any, written: Kernel) -> None:
    script = f"import sys; sys.path.insert(0, {str(written.folder)!r}); import transformer_ops as k; print(k.rms_norm)"
    command = [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}; {script}"]
    assert "rms_norm" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_layer_of_a_model_is_swapped(kernel: Any, written: Kernel) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads))
    ids = torch.randint(0, 64, (2, 9))
    expected = model(ids, labels=ids)
    gradients = torch.autograd.grad(expected.loss, list(model.parameters()))
    layer = kernels.LocalLayerRepository(written.folder.parents[1], layer_name="RMSNorm")
    mode = kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE
    with pytest.MonkeyPatch.context() as patch:  # transformers marks it itself, for other releases of kernels
        patch.setattr(LlamaRMSNorm, "kernel_layer_name", "RMSNorm", raising=False)
        patch.setattr(LlamaRMSNorm, "kernel_condition", staticmethod(lambda _: True), raising=False)
        with kernels.use_kernel_mapping({"RMSNorm": {"cpu": layer}}, inherit_mapping=False):
            model = kernels.kernelize(model, mode=mode, device="cpu")
    with Operators(written.id) as called:
        got = model(ids, labels=ids)
    assert called.counts == {"rms_norm": 5}
    assert_close(got.logits, expected.logits)
    assert_close(torch.autograd.grad(got.loss, list(model.parameters())), gradients)
    norm, x = model.model.norm, torch.randn(3, 32)
    assert_close(torch.compile(norm, fullgraph=True)(x), norm(x))


@pytest.mark.slow
def test_torch_compile(kernel: Any) -> None:
    x, weight = torch.randn(4, 8), torch.randn(8)
    assert_close(torch.compile(kernel.rms_norm, fullgraph=True)(x, weight), kernel.rms_norm(x, weight))


def test_audit_and_judge_find_it(kernel: Any, written: Kernel) -> None:
    from opwheel_tools.audit.target import Target
    from opwheel_tools.judge import subjects

    folder = str(written.folder.parents[1])
    assert f"{written.id}::rms_norm" in Target(folder).load()
    assert subjects.find(f"{folder}:rms_norm") is kernel.rms_norm
    for statements in (Target(folder).statements(), subjects.statements(f"{folder}:rms_norm", "candidate")):
        names: dict[str, Any] = {}
        exec("\n".join(statements), names)
        assert names["kernel"] is kernel
    assert names["candidate"] is kernel.rms_norm


@pytest.mark.slow
@pytest.mark.nightly
def test_audit_and_judge_run_it(written: Kernel, tmp_path: Path) -> None:
    from opwheel_tools.audit.run import audit
    from opwheel_tools.judge import judge

    folder = str(written.folder.parents[1])
    found = audit(folder, only=["rms_norm"], checks=["call"])
    assert {result.cell.operator for result in found.results} == {f"{written.id}::rms_norm"}
    assert not found.findings
    (tmp_path / "norms.py").write_text(
        "import torch\n"
        "def wrong(x, w): return torch.nn.functional.rms_norm(x, w.shape, w, 1e-2)\n"
        "def inputs(): yield torch.randn(4, 16), torch.randn(16)\n"
    )
    file = tmp_path / "norms.py"
    verdict = judge(f"{folder}:rms_norm", reference=f"{file}:wrong", inputs=f"{file}:inputs")
    assert not verdict.is_right
    assert "get_local_kernel" in verdict.findings[0].reproduction


def test_what_cannot_be_exported_is_refused(written: Kernel, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="the backend 'acme' is not loaded"):
        export_kernel(transformer_ops.library, "acme", tmp_path)
    with pytest.raises(ExportError, match="exists; remove it, or name another --output"):
        export_kernel(transformer_ops.library, "cpu", written.folder.parents[1])
