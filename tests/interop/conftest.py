"""What one test leaves in PyTorch's own state is not the next one's."""

import pytest
import torch


@pytest.fixture(autouse=True)
def saved_tensors_hooks_enabled():
    """A failed trace of torch.func leaves saved-tensor hooks refused; PyTorch's own tests end like this, too."""
    yield
    torch._C._autograd._saved_tensors_hooks_enable()
