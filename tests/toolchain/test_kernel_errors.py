"""The codes of kernels' errors, which Python and the native Autograd library read: both read the same."""

import json
import subprocess
from pathlib import Path

import pytest
from opwheel.dispatch import kernel_errors

SOURCES = Path(__file__).parents[2] / "framework/src/opwheel/csrc/autograd"
OOM = kernel_errors.OUT_OF_MEMORY

# A message, and what memory a kernel did not get by it: bytes, type and index of the device.
MESSAGES = {
    f"{OOM} mul: out of memory (bytes=96 device=npu:1)": (96, "npu", ":1"),
    f"{OOM} (bytes=96 device=cpu)": (96, "cpu", ""),
    f"{OOM}(bytes=0 device=privateuseone:12) \n": (0, "privateuseone", ":12"),
    f"{OOM} (bytes=1 device=a) (bytes=2 device=b)": (2, "b", ""),
    f"{OOM} (bytes=999999999999999999 device=cuda:0)": (999999999999999999, "cuda", ":0"),
    f"{OOM} (bytes=1000000000000000000 device=cuda:0)": None,  # more than there is anywhere
    f"{OOM} (bytes=-96 device=cuda:0)": None,
    f"{OOM} (bytes=96 device=cuda:)": None,
    f"{OOM} (bytes=96 device=)": None,
    f"{OOM} (bytes=96  device=cpu)": None,
    f"{OOM} (bytes=\N{ARABIC-INDIC DIGIT ONE} device=cpu)": None,
    f"{OOM} (bytes=96 device=\N{GREEK SMALL LETTER ALPHA})": None,
    f"{OOM} (bytes=96 device=cpu) and more": None,
    f"{OOM} (bytes=96 device=cpu)\nand more": None,
    f"{OOM} words": None,
    OOM: None,
    f" {OOM} (bytes=96 device=cpu)": None,
    f"mul: {OOM} (bytes=96 device=cpu)": None,
    f"{kernel_errors.LAUNCH} mul: (bytes=96 device=cpu)": None,
    "mul: (bytes=96 device=cpu)": None,
    "": None,
}

PROGRAM = """
#include <cstdio>
#include "wanted_memory.h"
int main(int count, char** messages) {
  for (int i = 1; i < count; ++i) {
    const auto wanted = opwheel::autograd::wanted_memory(messages[i]);
    if (!wanted) std::puts("null");
    else std::printf("[%lld, \\"%s\\", \\"%s\\"]\\n", (long long)wanted->bytes, wanted->device_type.c_str(),
                     wanted->index.c_str());
  }
}
"""


@pytest.mark.parametrize("message", MESSAGES)
def test_in_python(message):
    assert kernel_errors.memory_wanted(RuntimeError(message)) == MESSAGES[message]


def test_in_cpp(tmp_path):
    program = tmp_path / "program"
    command = ["g++", "-std=c++20", f"-I{SOURCES}", "-x", "c++", "-", "-o", str(program)]
    subprocess.run(command, input=PROGRAM, text=True, check=True)
    printed = subprocess.run([program, *MESSAGES], capture_output=True, text=True, check=True).stdout.splitlines()
    found = [tuple(json.loads(line) or ()) or None for line in printed]
    assert dict(zip(MESSAGES, found, strict=True)) == MESSAGES
