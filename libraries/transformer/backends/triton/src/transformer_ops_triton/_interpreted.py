"""Whether Triton's interpreter runs the kernels, on the CPU."""

import os

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
