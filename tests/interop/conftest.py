"""What one test leaves in PyTorch's own state is not the next one's."""

import pytest
import torch


@pytest.fixture(autouse=True)
def saved_tensors_hooks_enabled():
    """torch.compile of torch.func leaves saved-tensor hooks refused when tracing fails; PyTorch's own tests do the same."""
    yield
    torch._C._autograd._saved_tensors_hooks_enable()
