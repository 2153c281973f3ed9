"""One command raises the version everywhere."""

import re
import shutil

import opwheel
import pytest

from release import version

OWN = opwheel.__version__


def test_every_file_has_the_same():
    said = {text for _, text in version.mentions()}
    (own,) = (text for text in said if "<" not in text)
    assert said == {own, version.bounds_of(own)}


def test_it_is_set_everywhere(tmp_path):
    before = list(version.mentions())
    for file in version.tracked_files():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(version.ROOT / file, tmp_path / file)
    changed = version.set_version("3.7.1", tmp_path)
    assert set(changed) == {file for file, _ in before}
    assert {text for _, text in version.mentions(tmp_path)} == {"3.7.1", "3.7,<3.8"}
    for file in changed:  # and nothing else
        back = (tmp_path / file).read_text().replace("3.7.1", OWN).replace("3.7,<3.8", version.bounds_of(OWN))
        assert back == (version.ROOT / file).read_text()


@pytest.mark.parametrize("given", ["1", "1.2", "v1.2.3", "1.2.3rc1"])
def test_what_is_no_version(monkeypatch, capsys, given):
    monkeypatch.setattr("sys.argv", ["version", given])
    with pytest.raises(SystemExit):
        version.main()
    assert re.search(f"'{given}' is no version, expected three numbers", capsys.readouterr().err)
