"""The pytest fixture ``judge``."""

import pytest

from .planted import HERE

pytestmark = pytest.mark.usefixtures("in_this_process")
REFERENCES = HERE / "references.py"


def test_it_fails_where_a_kernel_is_wrong_and_gives_the_verdict_where_it_is_right(judge, tmp_path):
    file = tmp_path / "one_percent.py"
    file.write_text("def row_sums(x):\n    return x.sum(-1) * 1.01\n")
    arguments = {"reference": f"{REFERENCES}:row_sums", "inputs": f"{REFERENCES}:row_sums_inputs"}
    with pytest.raises(pytest.fail.Exception, match=r"WRONG: .*row_sums: wrong values"):
        judge(f"{file}:row_sums", **arguments)
    assert judge(f"{HERE / 'candidates.py'}:row_sums", **arguments).is_right
