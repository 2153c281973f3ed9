"""What one test leaves in PyTorch's own state is not the next one's."""

import pytest
import torch


@pytest.fixture(autouse=True)
def saved_tensors_hooks_enabled():
    """Where tracing of torch.func fails, torch.compile leaves saved-tensor hooks refused; PyTorch's tests end so, too."""
    yield
    torch._C._autograd._saved_tensors_hooks_enable()
