"""The compiler flags of the instruction sets that a CPU backend has loops for (``opwheel/cpu/vectorized_loops.h``)."""

from __future__ import annotations

from opwheel._build.toolchain import machine

# After the baseline.
_SETS = {
    "x86_64": {
        "avx2": ["-mavx2", "-mfma", "-mf16c"],
        "avx512": [
            *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c"),
            "-mprefer-vector-width=256",  # loops beyond the second-level cache are 5 % faster than with 512 on a Zen 4
            "-Wno-maybe-uninitialized",  # GCC 12 says it of its own header
        ],
    },
    "aarch64": {"bf16": ["-march=armv8.2-a+bf16"]},  # what has bf16 has the rest of 8.2, too
}


def instruction_sets(source: str, *, contract: bool = False) -> dict[str, list[str]]:
    """Sources of a :class:`CppLibrary`, with the flags of each, for the processor that the build is for.

    Args:
        source: a path with ``{}`` for the instruction set: ``"csrc/kernels_{}.cpp"``. On x86-64 there are ``baseline``,
            ``avx2`` and ``avx512``, on aarch64 ``baseline`` and ``bf16``, elsewhere ``baseline`` alone.
        contract: compute a product and a sum in one instruction, with one rounding, where the machine has it. Results
            then differ from PyTorch's in the last place, and where a product alone overflows.
    """
    sets: dict[str, list[str]] = {"baseline": [], **_SETS.get(machine(), {})}
    # A square root that sets errno is of one number at a time.
    arithmetic = [f"-ffp-contract={'fast' if contract else 'off'}", "-fno-math-errno"]
    return {source.format(name): [*flags, *arithmetic] for name, flags in sets.items()}
