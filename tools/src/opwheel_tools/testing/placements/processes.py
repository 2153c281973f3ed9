"""Processes that are simulated in this one: PyTorch's ``LocalTensorMode`` over a process group that is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import distributed
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore


@contextmanager
def simulated_group(count: int) -> Iterator[None]:
    """So many processes, of which this one is the first. There must be no process group yet."""
    distributed.init_process_group("fake", rank=0, world_size=count, store=FakeStore())
    try:
        yield
    finally:
        distributed.destroy_process_group()


@contextmanager
def simulated_mesh(*shape: int) -> Iterator[Any]:
    """All processes of a group side by side: a mesh, whose local tensors are those of every process."""
    count = distributed.get_world_size()
    with LocalTensorMode(frozenset(range(count))):
        yield init_device_mesh("cpu", shape)
