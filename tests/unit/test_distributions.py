"""Installed distributions: the quick way to find plugins among them finds those that importlib.metadata does."""

import sys
import zipfile
from importlib import metadata
from importlib.machinery import PathFinder

import pytest
from opwheel.registry import distributions
from opwheel.registry.discovery import find_plugins
from opwheel.registry.distributions import distributions_for, name_and_version

GROUP = "waves.backends"
HEAD = "Metadata-Version: 2.1\nName: a\nVersion: 1.0\n"


def install(folder, name, entry_points="", text=HEAD):
    folder = folder / name
    folder.mkdir(parents=True)
    (folder / "METADATA").write_bytes(text.encode())
    if entry_points:
        (folder / "entry_points.txt").write_bytes(entry_points.encode())


def found():
    return [(str(one._path), one.read_text("entry_points.txt")) for one in distributions_for(GROUP)]


def expected():
    every = [(str(one._path), one.read_text("entry_points.txt")) for one in metadata.distributions()]
    return [(path, text) for path, text in every if text and GROUP in text]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    return tmp_path / "site"


def test_those_that_mention_the_group(folder):
    for name in ("a-1.0.dist-info", "b-2.0.DIST-INFO", "c.egg-info", "a-2.0.dist-info"):
        install(folder, name, f"[{GROUP}]\nx = y\n")
    install(folder, "d-1.0.dist-info", "[console_scripts]\nx = y\n")
    install(folder, "e-1.0.dist-info")
    install(folder, "waves.backends", f"[{GROUP}]\nx = y\n")
    (folder / "f.egg-info").write_text(f"[{GROUP}]\n")  # a file, as distutils wrote it
    (folder / "g-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    assert len(found()) == 4
    assert sorted(found()) == sorted(expected())
    twice = [path for path, _ in expected() if "/a-" in path]
    assert [path for path, _ in found() if "/a-" in path] == twice  # the first of them counts


def test_a_large_file_is_read_to_its_end(folder, monkeypatch):
    monkeypatch.setattr(distributions, "_BLOCK", 16)
    install(folder, "a-1.0.dist-info", f"[console_scripts]\nx = y\n[{GROUP}]\nx = y\n")
    assert found() == expected() != []


def test_archives_eggs_and_the_current_folder(folder, monkeypatch):
    install(folder / "whole.egg", "EGG-INFO", f"[{GROUP}]\nx = y\n")
    install(folder / "current", "a-1.0.dist-info", f"[{GROUP}]\nx = y\n")
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.writestr("z-1.0.dist-info/METADATA", HEAD)
        archive.writestr("z-1.0.dist-info/entry_points.txt", f"[{GROUP}]\nx = y\n")
    (folder / "text").write_text("no archive")
    monkeypatch.chdir(folder / "current")
    places = [str(folder / name) for name in ("archive.zip", "not_there", "text", "whole.egg")]
    monkeypatch.setattr(sys, "path", ["", *places])
    assert found() == expected()
    assert len(found()) == 3


class Finder:
    def find_distributions(self, _context):
        return [metadata.PathDistribution(self.folder)]


def test_finders_of_others(folder, monkeypatch):
    install(folder, "a-1.0.dist-info", f"[{GROUP}]\nx = y\n")
    finder = Finder()
    finder.folder = folder / "elsewhere"
    install(folder, "elsewhere", f"[{GROUP}]\nx = y\n")
    monkeypatch.setattr(sys, "meta_path", [finder, PathFinder])
    assert found() == expected()
    assert len(found()) == 2


class Unreadable(metadata.Distribution):
    def read_text(self, _filename):
        raise OSError("gone")

    def locate_file(self, path):
        return path


def test_what_cannot_be_read_is_no_plugin(monkeypatch):
    finder = Finder()
    finder.find_distributions = lambda _context: [Unreadable()]
    monkeypatch.setattr(sys, "meta_path", [finder])
    assert find_plugins(GROUP) == ([], [])


class Silent(PathFinder):
    find_distributions = None


def test_where_python_s_finder_finds_none(folder, monkeypatch):
    """As after the import of importlib_metadata, whose finder does it then."""
    install(folder, "a-1.0.dist-info", f"[{GROUP}]\nx = y\n")
    monkeypatch.setattr(distributions, "PathFinder", Silent)
    monkeypatch.setattr(sys, "meta_path", [Silent])
    assert found() == []


HEADS = [
    HEAD,
    HEAD.replace("\n", "\r\n"),
    f"{HEAD}Summary: of it\n\nName: b\n",
    "Metadata-Version: 2.1\nVersion: 1.0\nName: a\n",
    "Metadata-Version: 2.1\nName: a\nVersion: 1.0\n folded\n",
    "Metadata-Version: 2.1\nName:  a \nVersion: 1.0\n",
    "Metadata-Version: 2.1\nname: a\nversion: 1.0\n",
    "Name: a\nVersion: 1.0\n",
    "words\nName: a\nVersion: 1.0\n",
    "Metadata-Version: 2.1\nName: a\n",
    "Metadata-Version: 2.1\nName: a\nVersion: 1.0",
    "",
]


@pytest.mark.parametrize("text", HEADS)
def test_names_and_versions(text, folder):
    install(folder, "a-1.0.dist-info", text=text)
    [one] = metadata.distributions()
    assert name_and_version(one) == (one.metadata["Name"], one.metadata["Version"])


def test_names_and_versions_of_an_egg_info(folder):
    install(folder, "a.egg-info")
    (folder / "a.egg-info" / "METADATA").rename(folder / "a.egg-info" / "PKG-INFO")
    [one] = metadata.distributions()
    assert name_and_version(one) == ("a", "1.0")
