"""Names of backends and requirements: what is checked without a regular expression, which takes long to compile."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opwheel.registry.loading import LoadError, check_requirement
from opwheel.registry.values import is_name


@given(st.one_of(st.text(max_size=110), st.text("aZ09_.-é٣ ", max_size=8), st.from_regex(r"[a-z0-9._-]{95,105}")))
def test_names(text):
    assert is_name(text) == bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", text))


@pytest.mark.parametrize("text", ["torch>=2.10", "torch >= 2.10 ", "torch>=2", "torch", "pluggy>=1"])
def test_requirements_that_are_met(text):
    check_requirement(text)


@pytest.mark.parametrize("text", ["torch>=99", "torch >= 2.999", "torch>=2.10,<2.11", "torchvision>=1000"])
def test_requirements_that_are_not_met(text):
    with pytest.raises(LoadError, match="it requires"):
        check_requirement(text)


@pytest.mark.parametrize("text", ["torch>=", "torch>=2..1", "torch>=٢", "torch=>2", ">=2.10", "torch>=2 10"])
def test_requirements_that_are_not_valid(text):
    with pytest.raises(LoadError, match="is not valid"):
        check_requirement(text)
