"""Position embeddings of an image's patches."""

import torch

from tests.time_machine.entry import Entry
from tests.time_machine.prepare import absent, bare

ENTRY = Entry(
    repository="pytorch/torchtitan",
    fix="717e9358f7794c2979f213c5ffbdac8b2d64bfa2",
    wrong="rows and columns are confused where an image is not square",
    group="values",
    says="result",
    package="torchtitan",
)


def candidate(table):
    absent("tyro", "spmd_types", "spmd_types.checker", "spmd_types.runtime")
    bare("torchtitan", "torchtitan.models", "torchtitan.models.muse_glimmer")
    from torchtitan.models.muse_glimmer import vision_encoder

    vision_encoder._annotate_vision_activation_type = lambda x: x  # without spmd_types
    sizes = {"grid_h": 2, "grid_w": 5, "src_grid_h": 4, "src_grid_w": 4}
    return vision_encoder._vision_pos_embed(table, **sizes, latent_dim=table.shape[1], device=table.device)


def reference(table):
    def weights(size):
        places = (torch.arange(size, dtype=table.dtype) + 0.5) * 4 / size - 0.5
        return (1 - (places[:, None] - torch.arange(4)).abs()).clamp(min=0)

    weight = (weights(2)[:, None, :, None] * weights(5)[None, :, None, :])[..., None]
    terms = torch.where(weight > 0, weight * table.view(4, 4, table.shape[1]), 0)
    return terms.sum((2, 3)).flatten(0, 1)


def inputs():
    yield (torch.randn(16, 3),)
