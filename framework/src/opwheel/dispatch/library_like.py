"""The protocol of an operator library, as the registrations use it; imported for type checking only."""

from __future__ import annotations

from typing import Protocol

from ..registry import NoKernelError
from ..registry.policy import Policy


class LibraryLike(Protocol):
    """What the registrations use of an operator library; :class:`opwheel.registry.OperatorLibrary` implements it."""

    @property
    def namespace(self) -> str:
        """Of the operators: ``torch.ops.<namespace>``."""

    @property
    def schemas(self) -> tuple[str, ...]:
        """All schemas, without the namespace."""

    @property
    def policy(self) -> Policy:
        """Says whether a call without a kernel is an error, and which results are checked."""

    def load_pending(self) -> bool:
        """Load kernels that had to wait; whether the call should be tried again."""

    def backend_at(self, operator: str, dispatch_key: str) -> str:
        """The backend whose kernel is there, with its distribution, as messages name it; empty if there is none."""

    def no_kernel_error(self, operator: str, device_type: str, layout: str = "strided") -> NoKernelError:
        """What a call without a kernel raises."""
