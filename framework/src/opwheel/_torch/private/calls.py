"""What a call is made under, and how a kernel passes it on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from ..lookup import Missing, attribute, find, found, holder, is_missing
from .dispatcher import dispatch_keys

below_autograd = find("torch._C._AutoDispatchBelowAutograd")
below_version_bump = find("torch._C._AutoDispatchBelowADInplaceOrView")
functorch_is_active = find("torch._C._are_functorch_transforms_active")
any_requires_grad = find("torch._C._any_requires_grad")

_after_autograd = find("torch._C._after_autograd_keyset")
_after_version_bump = find("torch._C._after_ADInplaceOrView_keyset")
_len_torch_dispatch_stack = find("torch._C._len_torch_dispatch_stack")
_ExcludeDispatchKeyGuard = find("torch._C._ExcludeDispatchKeyGuard")
_is_any_autocast_enabled = find("torch._C._is_any_autocast_enabled")
_DispatchKeySet = find("torch._C.DispatchKeySet")
_DispatchKey = find("torch._C.DispatchKey")
_get_current_dispatch_mode_stack = find("torch.utils._python_dispatch._get_current_dispatch_mode_stack")
_forward_ad = holder("torch.autograd.forward_ad._current_level")


def after_autograd(keys: Any) -> Any:
    """Those of a set of keys that come after Autograd."""
    return _after_autograd & keys


def after_version_bump(keys: Any) -> Any:
    """Those of a set of keys that come after ADInplaceOrView."""
    return _after_version_bump & keys


def any_autocast_is_enabled() -> bool:
    """Whether ``torch.autocast`` is on for some device type."""
    return bool(_is_any_autocast_enabled())


def forward_ad_is_active() -> bool:
    """Whether some ``forward_ad.dual_level()`` is entered, so that tensors may carry tangents."""
    return bool(_forward_ad._current_level >= 0)


def keyset(key: str) -> Any:
    """A set of one dispatch key."""
    return _DispatchKeySet(getattr(_DispatchKey, key))


def operation(op: Any) -> Callable[..., Any]:
    """An overload's call without the frame of Python around it."""
    function: Callable[..., Any] = op if is_missing("torch.ops.aten.neg.default._op") else op._op
    return function


def set_operation(op: Any, function: Callable[..., Any]) -> None:
    """Give an overload another function to call, which changes its hash."""
    if not is_missing("torch.ops.aten.neg.default._op"):
        op._op = function


def redispatch(op: Any) -> Callable[..., Any]:
    """``op.redispatch`` without the frame of Python around it: called with a set of dispatch keys and the arguments."""
    function: Callable[..., Any] = attribute(op, "_handle", "torch.ops.aten.neg.default._handle").redispatch_boxed
    return function


def without_dispatch_key(key: str) -> Any:
    """A context in which the dispatcher skips ``key``."""
    return _ExcludeDispatchKeyGuard(keyset(key))


@contextmanager
def below_autograd_and_autocast() -> Iterator[None]:
    """A context in which the dispatcher skips the keys at which PyTorch's own kernels are not asked again."""
    with ExitStack() as stack:
        stack.enter_context(below_version_bump())
        for keys in _autocast_keysets():
            stack.enter_context(_ExcludeDispatchKeyGuard(keys))
        yield


@contextmanager
def checkpoint_policies_see(called: Any, training: Any) -> Iterator[None]:
    """A context in which policies of selective checkpointing that would keep ``called`` keep ``training``, too.

    Their modes ask the policy by the operator that they see, and keep what that one returns.
    """
    checkpoint: Any = sys.modules.get("torch.utils.checkpoint")
    changed = []
    for mode in _checkpointing_modes() if checkpoint else []:
        policy = getattr(mode, "policy_fn", None)  # newer releases ask once, in the forward pass
        if policy is not None:
            changed.append((mode, policy))
            mode.policy_fn = _keeping_either(policy, called, training, checkpoint.CheckpointPolicy)
    try:
        yield
    finally:
        for mode, policy in changed:
            mode.policy_fn = policy


def _checkpointing_modes() -> list[Any]:
    """The modes of selective checkpointing that are entered; none where they are not found."""
    if isinstance(_len_torch_dispatch_stack, Missing) or not _len_torch_dispatch_stack():
        return []
    kinds = (
        found("torch.utils.checkpoint._CachingTorchDispatchMode"),
        found("torch.utils.checkpoint._CachedTorchDispatchMode"),
    )
    if any(isinstance(one, Missing) for one in (*kinds, _get_current_dispatch_mode_stack)):
        return []
    return [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, kinds)]


def _keeping_either(policy: Callable[..., Any], called: Any, training: Any, policies: Any) -> Callable[..., Any]:
    def ask(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        if op is training:
            answer = policy(context, called, *args, **kwargs)
            if answer in (True, policies.MUST_SAVE, policies.PREFER_SAVE):
                return answer
        return policy(context, op, *args, **kwargs)

    return ask


def batched(rule: Callable[..., Any], op: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """A call at the FuncTorchBatched key with a rule as ``torch.library.register_vmap`` takes it.

    Args:
        rule: ``rule(info, in_dims, *values)`` gives results and their batch dimensions.
        op: is called instead where nothing is batched at the innermost level of vmap.
        values: of the arguments.
    """
    interpreter = found("torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter")()
    return found("torch._functorch.autograd_function.custom_function_call_vmap_helper")(interpreter, rule, op, *values)


@cache
def _autocast_keysets() -> list[Any]:
    """A set for each of autocast's keys."""
    return [_DispatchKeySet(key) for name, key in dispatch_keys().items() if name.startswith("Autocast")]
