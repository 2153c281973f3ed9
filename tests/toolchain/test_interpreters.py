"""CPythons that are built here: their sources come out of Debian's archive, or a sentence says which did not."""

import hashlib
import shutil

import pytest

from release import debian
from release.interpreters import INTERPRETERS, Interpreter

FILE = "pool/main/p/python3.99/python3.99_3.99.0~rc1.orig.tar.xz"

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="this takes packages of Debian")


@pytest.fixture
def archive(tmp_path):
    """One of a single file, as a URL."""
    path = tmp_path / "archive" / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"sources")
    return f"file://{tmp_path}/archive"


@needs_apt
def test_a_file_of_the_archive_is_downloaded(archive, tmp_path):
    sum_of_it = hashlib.sha256(b"sources").hexdigest()
    assert debian.download(FILE, sum_of_it, tmp_path, archive).read_bytes() == b"sources"


@needs_apt
@pytest.mark.parametrize(
    ("file", "reason"), [(FILE, "Hash Sum mismatch"), (FILE.replace("rc1", "rc2"), "File not found")]
)
def test_another_file_or_none_is_one_sentence(file, reason, archive, tmp_path):
    with pytest.raises(SystemExit) as caught:
        debian.download(file, "0" * 64, tmp_path, archive)
    message = str(caught.value)
    assert message.startswith(f"release: Debian's archive gives no {file} with the SHA-256 {'0' * 64}: {reason}")
    assert "\n" not in message
    assert not (tmp_path / file.rpartition("/")[2]).exists()


def test_without_apt_it_is_said(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(SystemExit, match="there is no apt-helper: this takes packages of Debian"):
        debian.download(FILE, "0" * 64, tmp_path, archive)


@pytest.mark.parametrize("name", INTERPRETERS)
def test_each_is_of_its_minor_version(name):
    source, torch = INTERPRETERS[name]
    assert source.file == f"pool/main/p/python{name[:4]}/python{name[:4]}_{source.version}.orig.tar.xz"
    assert torch.startswith("torch==")
    assert Interpreter(name).is_free_threaded == name.endswith("t")
    assert Interpreter(name).python.name == f"python{name}"
