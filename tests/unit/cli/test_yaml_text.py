"""-o yaml: what a reader of YAML reads is what --json would have said."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.yaml_text import yaml_text

_SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.sampled_from(["no", "1e3", "a: b", "-", "2026-11-01", "0x1", "~", "x #y", "1_000", "12:30:00", "=", "<<"])  # fmt: skip
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(_VALUES)
def test_yaml_is_read_as_what_was_written(value: Any) -> None:
    assert yaml.safe_load(yaml_text(value)) == value


def test_it_is_made_for_people() -> None:
    assert yaml_text(
        {"schema": "headrace.x/v1", "items": [{"name": "a", "size": 1}, {"name": "no", "size": []}]}
    ) == ('schema: headrace.x/v1\nitems:\n  - name: a\n    size: 1\n  - name: "no"\n    size: []\n')
