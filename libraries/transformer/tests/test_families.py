"""Every causal family of transformers computes the same when it is patched.

The record of the nightly run is families/families.json, from which docs/families.py makes the documentation's table.
"""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

HERE = Path(__file__).parent / "families"
RECORD = HERE / "families.json"
DOCS = Path(__file__).parents[3] / "docs"
# Of each kind of code one: what is replaced in most families, Gemma's and Olmo2's norms, packed projections, layer
# norms and neighbouring pairs, half tables, partial rotation, experts, a scale of the logits, and nothing but the loss.
EVERY_DAY = ("llama", "gemma2", "olmo2", "phi3", "cohere2", "gpt_oss", "glm4", "qwen3_moe", "granite", "gpt2")
AT_A_TIME = 12


def compare(families, environment=None):
    """Records by family; a process that dies leaves the rest of its families out."""
    command = [sys.executable, str(HERE / "compare.py"), *families]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    records = {record["family"]: record for record in map(json.loads, done.stdout.splitlines())}
    for family in families:
        reason = f"the process ended: {done.stderr[-200:]}"
        records.setdefault(family, {"family": family, "state": "not run", "reason": reason})
    return records


def wrong(records):
    return [record for record in records.values() if record["state"] == "differs"]


@pytest.mark.slow
def test_ten_families():
    records = compare(EVERY_DAY)
    assert {record["state"] for record in records.values()} == {"replaced"}, records
    recorded = json.loads(RECORD.read_text())["families"]
    for family, record in records.items():
        assert record["replaced"] == recorded[family]["replaced"]


def test_the_page_of_families_is_that_of_the_record():
    page = runpy.run_path(str(DOCS / "families.py"))["page"](json.loads(RECORD.read_text()))
    assert (DOCS / "transformer-families.md").read_text() == page


@pytest.mark.nightly
def test_every_family():
    listed = "import compare; print(*compare.families())"
    families = subprocess.run([sys.executable, "-c", listed], cwd=HERE, capture_output=True, text=True, check=True)
    every, records = families.stdout.split(), {}
    for start in range(0, len(every), AT_A_TIME):
        records |= compare(every[start : start + AT_A_TIME])
    import transformers

    RECORD.write_text(json.dumps({"transformers": transformers.__version__, "families": records}, indent=1) + "\n")
    assert not wrong(records)
    assert sum(record["state"] == "replaced" for record in records.values()) >= 130


@pytest.mark.nightly
def test_an_older_release(tmp_path):
    """Its requirements are older than those of the installed release."""
    needed = ("transformers==4.57.6", "huggingface_hub==0.36.0", "tokenizers==0.22.2", "kernels==0.9.0")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "-t", tmp_path, *needed], check=True)

    records = compare(EVERY_DAY, os.environ | {"PYTHONPATH": str(tmp_path)})
    assert {record["state"] for record in records.values()} == {"replaced"}, records
    recorded = json.loads(RECORD.read_text())["families"]
    for family, record in records.items():
        # Of experts that are modules there, more is replaced.
        assert recorded[family]["replaced"].items() <= record["replaced"].items()
