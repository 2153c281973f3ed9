"""Random programs of copies, views and calls that write are what they are without the compiler."""

import os
from random import Random

import pytest
import torch

from tests.interop.fuzzing.programs import Program, drawn

COMPILED = int(os.environ.get("TEST_FUZZ_COMPILED", "200"))
SEED = int(os.environ.get("TEST_FUZZ_SEED", "0"))


def outcome(program, function):
    arguments = program.arguments()
    return (*function(*arguments), *arguments)


def compare(program, backend):
    """With sizes that are fixed: otherwise PyTorch 2.13 is wrong (docs/decisions/0004-functionalization.md)."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda *arguments: program(*arguments), backend=backend, dynamic=False, fullgraph=True)
    torch.testing.assert_close(outcome(program, compiled), outcome(program, program))


# Each was found wrong, or refused, without a copy of its own (dispatch/reinplacing.py).
FOUND = {
    "out is a copy of what is read": Program(False, (("sin", (0,)), ("clone", (3,)), ("mix.out", (3, 3, 4))), (4,)),
    "what is read is a copy": Program(False, (("sin", (0,)), ("clone", (3,)), ("assign_", (3, 4))), (3,)),
    "what is written is a copy": Program(False, (("sin", (0,)), ("clone", (3,)), ("assign_", (4, 3))), (4,)),
    "an argument is written": Program(False, (("clone", (2,)), ("assign_", (2, 3))), (3,)),
    "copies of parts": Program(False, (("of three", (0,)), ("of two", (3,)), ("exchange_", (3, 4, 2))), (3, 4)),
    "a view of a copied part": Program(False, (("of three", (0,)), ("transposed", (3,)), ("assign_", (4, 2))), (3,)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_programs_that_were_wrong(name, backend, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    compare(FOUND[name], backend)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_random_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for number in range(SEED, SEED + max(1, COMPILED // 4)):
        random = Random(number)
        program = drawn(random)
        backend = random.choice(["inductor", "inductor", "aot_eager"])
        try:
            compare(program, backend)
        except Exception as error:
            raise AssertionError(f"TEST_FUZZ_SEED={number}: {backend}, {program}") from error
