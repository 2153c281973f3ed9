"""Headers and libraries of PyTorch releases, to build native Autograd with: `python -m release.torches [RELEASE ...]`.

Each is taken from its wheel, which pip downloads (200 to 900 MB, gone afterwards), and kept as a folder. The folders
are printed as OPWHEEL_TORCHES, which framework/setup.py reads.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from .platforms import platform_tags

# The oldest patch release of each minor: what is built with it runs with the later ones.
RELEASES = ("2.10.0", "2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.15.0")

# What compiling and linking needs, and the version.
_NEEDED = (
    "torch/include/*",
    *(f"torch/lib/lib{name}.so" for name in ("torch_cpu", "c10", "torch_python")),
    "torch-*.dist-info/METADATA",
)


def cache_folder() -> Path:
    """Where folders are kept from one time to the next."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "opwheel/torches"


def download(requirement: str, folder: Path, machine: str = "") -> Path:
    """A wheel from the index, for this machine or for another Linux processor.

    Raises:
        subprocess.CalledProcessError: pip cannot download it, and has said why.
    """
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]
    platforms = [f"--platform={one}" for one in platform_tags(machine)] if machine else []
    subprocess.run([*pip, "--only-binary", ":all:", *platforms, "--dest", str(folder), requirement], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpacked(release: str, cache: Path, machine: str = "") -> Path:
    """The folder with the package torch of a release; downloads it if it is not there.

    Args:
        release: such as ``"2.13.0"``.
        cache: the folder that it is in.
        machine: the processor that it is for; empty for this one.

    Raises:
        subprocess.CalledProcessError: pip cannot download it, and has said why.
    """
    folder = cache / "-".join(filter(None, ("torch", release, machine)))
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        # Any Python will do: the libraries do not depend on it.
        unpack(download(f"torch=={release}", Path(temporary), machine), Path(temporary) / "unpacked")
        (Path(temporary) / "unpacked").rename(folder)  # all of it, or nothing
    return folder


def unpack(wheel: Path, folder: Path) -> None:
    """Take what is needed out of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if any(fnmatch.fnmatch(name, one) for one in _NEEDED)]
        archive.extractall(folder, names)


def torches(releases: Sequence[str], cache: Path, machine: str = "") -> str:
    """The value of OPWHEEL_TORCHES."""
    return os.pathsep.join(str(unpacked(release, cache, machine)) for release in releases)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m release.torches", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("releases", nargs="*", metavar="RELEASE", default=RELEASES, help="all minors if left out")
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="where they are kept: %(default)s")
    options = parser.parse_args()
    print(torches(options.releases, options.cache.absolute()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
