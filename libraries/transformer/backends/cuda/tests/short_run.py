"""Calls of every operator and way to share a row, for compute-sanitizer: python short_run.py"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from cuda_calls import calls


def main():
    for dtype in (torch.bfloat16, torch.float32):
        for n in (8, 250, 1024, 4096, 20_000):
            for name, (function, args) in calls(n, dtype).items():
                if name.startswith("fused_linear"):
                    continue  # PyTorch's matrix products are not ours to check
                wanted = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.is_floating_point()]
                if "quantize" not in name and name != "reshape_and_cache":
                    for arg in wanted:
                        arg.requires_grad_()
                results = function(*args)
                results = [one for one in (results if isinstance(results, tuple) else (results,)) if one is not None]
                if any(one.requires_grad for one in results):
                    torch.autograd.backward(results, [torch.ones_like(one) for one in results])
    torch.cuda.synchronize()
    print("every call was made")


if __name__ == "__main__":
    main()
