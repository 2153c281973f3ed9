"""Calls torchvision's operators on small tensors, for ``opwheel audit torchvision --record FILE -- python THIS``."""

import torch
from torchvision import ops


def main() -> None:
    """Each operator of torchvision that has derivatives, and nms."""
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator)

    features = numbers(1, 4, 8, 8)
    boxes = torch.tensor([[0, 0.6, 0.7, 5.3, 4.9], [0, 2.1, 1.2, 7.4, 6.6]])  # image, x1, y1, x2, y2
    for pool in (ops.roi_align, ops.roi_pool, ops.ps_roi_align, ops.ps_roi_pool):
        pool(features, boxes, (2, 2))
    offsets, mask = 0.3 * numbers(1, 18, 6, 6), numbers(1, 9, 6, 6)
    ops.deform_conv2d(features, offsets, numbers(2, 4, 3, 3), numbers(2), mask=mask)
    ops.nms(boxes[:, 1:], torch.tensor([0.3, 0.9]), 0.5)


if __name__ == "__main__":
    main()
