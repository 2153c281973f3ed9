"""Debian's packages, for any processor and release, which are downloaded and not installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCES = Path("/etc/apt")


class Packages:
    """Lists and a state of packages of their own, in a folder: nothing of the system is changed.

    Args:
        folder: is made; what is downloaded stays in it.
        architecture: Debian's name of the processor; empty for this machine's.
        release: Debian's name of it; empty for that of this machine.
        kind: ``"deb"`` for :meth:`binary` and :meth:`unpacked`, ``"deb-src"`` for :meth:`source`.
        section: of the archive.

    Raises:
        SystemExit: this is no Debian.
        subprocess.CalledProcessError: the lists cannot be downloaded.
    """

    def __init__(
        self, folder: Path, architecture: str = "", *, release: str = "", kind: str = "deb", section: str = "main"
    ) -> None:
        if shutil.which("apt-get") is None:
            raise SystemExit("release: there is no apt-get: this takes packages of Debian")
        self._folder = folder
        for name in ("lists/partial", "archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        line = f"{kind} [signed-by={_KEYS}] {_mirror()} {release or _release()} {section}\n"
        (folder / "sources.list").write_text(line)
        settings = {
            **({"APT::Architecture": architecture, "APT::Architectures::": architecture} if architecture else {}),
            "Dir::State": folder,
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder,
            "Dir::Etc::SourceList": folder / "sources.list",
            "Dir::Etc::SourceParts": "-",
            **({"APT::Sandbox::User": "root"} if os.getuid() == 0 else {}),  # others may not write into the folder
        }
        self._apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
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

    def source(self, name: str) -> Path:
        """The archive of a package's sources as their authors have released them, without Debian's changes."""
        self._run("source", "--download-only", name)
        (archive,) = self._folder.glob(f"{name}_*.orig.tar.*[!c]")  # not its signature
        return archive

    def _run(self, *arguments: str) -> None:
        subprocess.run([*self._apt, *arguments], cwd=self._folder, check=True)


def _release() -> str:
    found = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("release: /etc/os-release names no release of Debian")
    return found[1]


def _mirror() -> str:
    """Where this machine has its packages from."""
    for file in (*sorted((_SOURCES / "sources.list.d").glob("*")), _SOURCES / "sources.list"):
        text = file.read_text() if file.is_file() else ""
        if found := re.search(r"^(?:URIs:|deb (?:\[.*\] )?)\s*(\S+/debian/?)\s?", text, re.MULTILINE):
            return found[1]
    raise SystemExit(f"release: nothing in {_SOURCES} says where Debian's packages are")
