"""Debian's packages, for any processor and release, which are downloaded and not installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCES = Path("/etc/apt")
_HELPER = "/usr/lib/apt/apt-helper"
_SANDBOX = ["-oAPT::Sandbox::User=root"] if os.getuid() == 0 else []  # others may not write into our folders


class Packages:
    """Lists and a state of packages of their own, in a folder: nothing of the system is changed.

    Args:
        folder: is made; what is downloaded stays in it.
        architecture: Debian's name of the processor; empty for this machine's.
        release: Debian's name of it; empty for that of this machine.
        section: of the archive.

    Raises:
        SystemExit: this is no Debian.
        subprocess.CalledProcessError: the lists cannot be downloaded.
    """

    def __init__(self, folder: Path, architecture: str = "", *, release: str = "", section: str = "main") -> None:
        _require("apt-get")
        self._folder = folder
        for name in ("lists/partial", "archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        line = f"deb [signed-by={_KEYS}] {mirror()} {release or _release()} {section}\n"
        (folder / "sources.list").write_text(line)
        settings = {
            **({"APT::Architecture": architecture, "APT::Architectures::": architecture} if architecture else {}),
            "Dir::State": folder,
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder,
            "Dir::Etc::SourceList": folder / "sources.list",
            "Dir::Etc::SourceParts": "-",
        }
        self._apt = ["apt-get", "-qq", *_SANDBOX, *(f"-o{name}={value}" for name, value in settings.items())]
        self._run("update")

    def binary(self, *names: str) -> list[Path]:
        """The archives of packages and of all that they depend on."""
        self._run("install", "--download-only", "--yes", "--no-install-recommends", *names)
        return sorted((self._folder / "archives").glob("*.deb"))

    def unpacked(self, name: str, folder: Path) -> None:
        """The files of one package, whatever it depends on."""
        self._run("download", name)
        (archive,) = self._folder.glob(f"{name}_*.deb")
        subprocess.run(["/usr/bin/dpkg", "-x", str(archive), str(folder)], check=True)

    def _run(self, *arguments: str) -> None:
        subprocess.run([*self._apt, *arguments], cwd=self._folder, check=True)


def _release() -> str:
    found = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("release: /etc/os-release names no release of Debian")
    return found[1]


def mirror() -> str:
    """Where this machine has its packages from."""
    for file in (*sorted((_SOURCES / "sources.list.d").glob("*")), _SOURCES / "sources.list"):
        text = file.read_text() if file.is_file() else ""
        if found := re.search(r"^(?:URIs:|deb (?:\[.*\] )?)\s*(\S+/debian)/?\s?", text, re.MULTILINE):
            return found[1]
    raise SystemExit(f"release: nothing in {_SOURCES} says where Debian's packages are")


def download(file: str, sha256: str, folder: Path, archive: str = "") -> Path:
    """A file of the archive's pool, also one that the lists of no release name any more.

    Args:
        file: its path in the archive, such as ``"pool/main/z/zlib/zlib_1.3.orig.tar.gz"``.
        sha256: what it must have.
        folder: where it is put.
        archive: its URL; empty for where this machine has its packages from.

    Raises:
        SystemExit: this is no Debian, or there is no such file with that sum.
    """
    _require(_HELPER)
    target = folder / Path(file).name
    command = [_HELPER, *_SANDBOX, "download-file", f"{archive or mirror()}/{file}", str(target), f"SHA256:{sha256}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        found = re.search(r"^E: Failed to fetch \S+\s+(.*?)(?: \[IP: .*)?$", done.stderr, re.MULTILINE)
        reason = found[1] if found else done.stderr.strip()
        raise SystemExit(f"release: Debian's archive gives no {file} with the SHA-256 {sha256}: {reason}")
    return target


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise SystemExit(f"release: there is no {Path(program).name}: this takes packages of Debian")
