"""muladd new-library: another operator library on the same framework, which passes its own conformance kit."""

import re
from pathlib import Path

import pytest
from muladd import cpp_extension, operators, registry, scaffold, testing

pytestmark = pytest.mark.wheels


@pytest.mark.slow
def test_it_builds_and_passes_its_own_kit(muladd, environment, tmp_path):
    result = muladd("new-library", "ocean-waves")
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "ocean-waves"
    assert f"wrote {sum(path.is_file() for path in folder.rglob('*'))} files" in result.stdout
    environment.install(folder / "core")
    without = environment.run("-m", "ocean_waves", "doctor")
    assert without.returncode == 1
    environment.install(folder / "backends/cpu")
    doctor = environment.run("-m", "ocean_waves", "doctor")
    assert (doctor.returncode, doctor.stdout) == (0, "cpu: loaded (ocean-waves-cpu 0.1.0), key CPU\n")
    own = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=folder)
    assert own.returncode == 0, own.stdout
    environment.passes_the_kit("cpu", "ocean_waves")
    # Its policy and its environment variables are its own.
    assert environment.status("cpu", "ocean_waves", OCEAN_WAVES_BACKENDS="")["state"] == "disabled"
    assert environment.status("cpu", "muladd", OCEAN_WAVES_BACKENDS="")["state"] == "loaded"
    failed = environment.run(
        "-c", "import torch, ocean_waves as o; o.axpby(torch.ones(2), torch.ones(2), 1, 1)", OCEAN_WAVES_BACKENDS=""
    )
    assert "ocean_waves::axpby has no kernel for cpu tensors" in failed.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Waves", "no name for a library"),
        ("2waves", "no name for a library"),
        ("torch", "reserved"),
        ("muladd", "reserved"),
        ("class", "keyword"),
        ("json", "standard library"),
    ],
)
def test_wrong_names(tmp_path, name, words):
    with pytest.raises(scaffold.ScaffoldError, match=words):
        scaffold.new_library(name, "0.1.0", output=tmp_path / "project")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(scaffold.ScaffoldError, match="not an empty folder"):
        scaffold.new_library("waves", "0.1.0", output=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_framework_knows_no_operator():
    """What a library is built on mentions no operator of muladd's, so that it serves any other as well."""
    names = "|".join(operator.name for operator in operators.DECLARATIONS)
    # As a call or an attribute of the namespace, in quotes, or qualified; plain words such as "add" are English.
    mention = re.compile(rf"""ops\.muladd\b|muladd::|\bmuladd\.({names})\b|["'`]({names})(\.out|_)?["'`]|\bfma\b""")
    for package in (registry, cpp_extension, testing):
        folder = Path(package.__file__).parent
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".cpp")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                # "muladd" in quotes is also the distribution's, the option's and the plugin project's name.
                found = [match for match in mention.finditer(line) if match[0].strip("\"'`") != "muladd"]
                assert not found, f"{path}:{number} mentions {found[0][0]}"
