"""What a library declares of a kernel for somebody else's operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ForeignKernel:
    """A kernel for an operator that another library or PyTorch defines.

    Args:
        operator: ``"aten::rms_norm"``, with the overload where it has one: ``"aten::_softmax.out"``.
        function: computes a call, with the operator's own arguments in the schema's order: by operators of the library,
            with the very results, strides and errors of the operator. Of a composite operator it has to be
            differentiable; of another one it is called below Autograd. An in-place or out variant writes into its
            argument and returns it.
        when: the conditions that a call has to meet, all of them, as expressions over the arguments
            (:class:`~opwheel.foreign.condition.Condition`): where the results are the operator's. In addition all
            tensors have to be plain: dense, of the device, of known sizes, without tangents, of no subclass that has a
            ``__torch_dispatch__`` (but for those of torch.compile), and no dispatch mode of the user's is entered.
            Every other call goes to the kernel that was there.
        uses: operators of the library that ``function`` calls; each has to have a kernel on the device.
        fast: further conditions: where it was measured to be no slower. They are asked first.
        name: what users call it: several operators may have one name. None: the operator's own.
        device_type: for tensors on which device.

    Raises:
        ValueError: the operator has no namespace, or the device is ``"meta"``, which computes nothing.
    """

    operator: str
    function: Callable[..., Any]
    when: tuple[str, ...]
    uses: tuple[str, ...]
    fast: tuple[str, ...] = ()
    name: str | None = None
    device_type: str = "cpu"

    def __post_init__(self) -> None:
        if "::" not in self.operator:
            raise ValueError(f"a foreign kernel is for {self.operator!r}, which has no namespace")
        if self.device_type == "meta":
            raise ValueError(f"a foreign kernel for {self.operator} is for meta tensors, which have nothing to compute")

    @property
    def conditions(self) -> tuple[str, ...]:
        """All of them, in the order in which they are asked."""
        return self.fast + self.when

    @property
    def label(self) -> str:
        """What users call it."""
        return self.name or self.operator.partition("::")[2]
