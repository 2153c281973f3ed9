"""The policy's loss with probabilities of an older policy, in PyTorch."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import fla

ENTRY = Entry(
    repository="fla-org/flash-linear-attention",
    fix="7bc4245590fb3d812ca9eb5bb877471471ace40c",
    wrong="the loss has the wrong sign",
    group="values",
    says="result",
    package="fla",
)


def candidate(logps, reference_logps, old_logps, mask, rewards):
    fla("fla.modules", "fla.ops")
    from fla.modules.grpo import grpo_loss_with_old_logps as loss

    loss = getattr(loss, "_torchdynamo_orig_callable", loss)  # without a compiler
    return loss(logps, reference_logps, old_logps, mask, logps.shape[1], rewards)


def reference(logps, reference_logps, old_logps, mask, rewards):
    if not logps.shape == reference_logps.shape == old_logps.shape == mask.shape:
        raise ValueError("the shapes do not fit")
    advantages = ((rewards - rewards.mean()) / (rewards.std() + 1e-8))[:, None]
    ratio = (logps - old_logps).exp()
    gain = torch.minimum(advantages * ratio, advantages * ratio.clamp(0.8, 1.2))
    difference = reference_logps - logps
    divergence = difference.exp() - difference - 1
    return -((gain - 0.2 * divergence) * mask).sum() / mask.sum()


def inputs():
    logps = -torch.rand(4, 5)
    near = [logps + torch.randn(4, 5) / 4 for _ in range(2)]
    yield logps, *near, torch.rand(4, 5) > 0.2, torch.randn(4)
