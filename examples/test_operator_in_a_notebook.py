"""The notebook: each cell run twice in one process, the mistakes with the messages that it shows."""

import json
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).with_name("operator_in_a_notebook.ipynb")


@pytest.mark.slow
def test_each_cell_twice():
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert sum("raises-exception" in cell["metadata"].get("tags", ()) for cell in cells) == 3
    scope = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        assert not cell["outputs"]
        code = compile("".join(cell["source"]), f"cell {number}", "exec")
        for _ in range(2):
            if "raises-exception" not in cell["metadata"].get("tags", ()):
                exec(code, scope)
                continue
            kind, _, message = cell["source"][-1].removeprefix("# ").partition(": ")
            with pytest.raises(Exception, match=".*".join(map(re.escape, message.split("...")))) as error:
                exec(code, scope)
            assert error.type.__name__ == kind
