"""What csrc/memory/memory_left.h makes of a system's files: the machine's, and those of control groups."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GIB = 2**30
MEMINFO = "MemTotal:       16777216 kB\nMemFree:  1024 kB\nMemAvailable:    8388608 kB\n"  # 16 GiB, 8 GiB
UNLIMITED = "9223372036854771712"
SOURCE = """
#include <iostream>
#include "memory_left.h"
int main(int, char** arguments) {
  const opwheel::MemoryLeft memory(arguments[1]);
  std::cout << memory.total() << ' ' << memory.available() << '\\n';
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory_left")
    (folder / "main.cpp").write_text(SOURCE)
    include = f"-I{ROOT / 'framework/src/opwheel/csrc/memory'}"
    subprocess.run(["g++", "-std=c++20", "-Wall", "-Werror", include, "main.cpp", "-o", "main"], cwd=folder, check=True)
    return folder / "main"


def version2(maximum, used, cached):
    return {
        "max": f"{maximum}\n",
        "current": f"{used}\n",
        "stat": f"anon 5\nfile 9\ninactive_file {cached}\nunevictable 0\n",
    }


def version1(maximum, used, cached):
    return {
        "limit_in_bytes": f"{maximum}\n",
        "usage_in_bytes": f"{used}\n",
        "stat": f"cache 9\ninactive_file 1\ntotal_inactive_file {cached}\n",
    }


@pytest.mark.parametrize(
    ("cgroup", "groups", "total", "left"),
    [
        ("", {}, 16, 8),
        ("0::/\n", {}, 16, 8),
        ("0::/\n", {"": version2(4 * GIB, 3 * GIB, 1 * GIB)}, 4, 2),  # a container
        ("0::/\n", {"": version2("max", 3 * GIB, 1 * GIB)}, 16, 8),
        ("0::/\n", {"": {"max": f"{4 * GIB}"}}, 4, 8),  # how much is used cannot be read
        ("0::/\n", {"": version2(4 * GIB, 5 * GIB, 0)}, 4, 0),
        ("0::/\n", {"": version2(4 * GIB, 1 * GIB, 2 * GIB)}, 4, 3),  # read at two moments
        ("0::/on/the/host\n", {"": version2(4 * GIB, 3 * GIB, 0)}, 4, 1),
        ("0::/job/step\n", {"job": version2(6 * GIB, GIB, 0), "job/step": version2("max", GIB, 0)}, 6, 5),
        ("0::/job/step\n", {"job": version2(6 * GIB, 5 * GIB, 0), "job/step": version2(3 * GIB, GIB, 0)}, 3, 1),
        ("0::/jobs\n", {"job": version2(GIB, GIB, 0)}, 16, 8),  # another one
        ("5:cpu:/a\n4:memory:/job\n0::/\n", {"memory/job": version1(2 * GIB, GIB, GIB // 2)}, 2, 1.5),
        ("4:cpu,memory:/\n", {"memory": version1(UNLIMITED, 3 * GIB, 0)}, 16, 8),
    ],
)
def test_memory_that_is_left(program, tmp_path, cgroup, groups, total, left):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(MEMINFO)
    (tmp_path / "proc/self/cgroup").write_text(cgroup)
    for path, files in groups.items():
        folder = tmp_path / "sys/fs/cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / f"memory.{name}").write_text(text)
    found = subprocess.run([program, tmp_path], capture_output=True, text=True, check=True).stdout.split()
    assert [int(number) / GIB for number in found] == [total, left]


def test_without_such_files(program, tmp_path):
    found = subprocess.run([program, tmp_path], capture_output=True, text=True, check=True).stdout.split()
    assert [int(number) for number in found] == [2**64 - 1] * 2
