"""Codec: how a table is partitioned, as a definition says it: `day`, `hour(shipped_at)`, `bucket(16, shop)`, `truncate(4, zip)`, `identity(country)`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FORM = re.compile(
    r"(?P<how>day|hour|identity|bucket|truncate)\s*(\(\s*((?P<width>\d+)\s*,\s*)?(?P<field>[^(),]+?)\s*\))?"
)
WIDTHS = {"hour": 3_600_000_000, "day": 86_400_000_000}
"""In microseconds."""
MOMENT = "_timestamp"
HINT = "day, hour, day(FIELD), hour(FIELD), identity(FIELD), bucket(N, FIELD) or truncate(N, FIELD)"


@dataclass(frozen=True, slots=True)
class PartitionField:
    how: str
    field: str
    width: int = 0

    @property
    def name(self) -> str:
        return self.field if self.how == "identity" else f"{self.field}_{self.how}"


def parse_partitions(given: str | Sequence[str]) -> list[PartitionField]:
    """Raises ValueError with what is wrong."""
    texts = ([given] if given else []) if isinstance(given, str) else list(given)
    return [_parse(text) for text in texts]


def _parse(text: str) -> PartitionField:
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(f'"{text}": write {HINT}')
    how, field, width = found["how"], found["field"] or "", int(found["width"] or 0)
    if (how in ("bucket", "truncate")) != bool(width) or (not field and how not in WIDTHS):
        raise ValueError(f'"{text}": write {HINT}')
    return PartitionField(how, field or MOMENT, width)
