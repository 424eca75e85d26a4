"""Machine: what happened lately, in fixed memory: a list of the last things worth a line, the same within some seconds as one line with a count.

A broker that dies takes the lead of a thousand partitions with it: that is one line, not a thousand. Names are kept up to a bound, so that whoever
may not see all of them is told about those that they may see (A44).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Literal

MOST = 1_000
MOST_NAMES = 50
FOLD_MS = 5_000
LOOK_BACK = 30

Severity = Literal["good", "info", "warning", "error"]
Thing = Literal["broker", "topic", "partition", "queue", "webhook"]


@dataclass(slots=True)
class Happening:
    number: int
    """In the order of this broker; a line that grows gets the next."""
    at_ms: int
    kind: str
    """leader-elected, isr-shrunk, broker-down, …: for programs."""
    severity: Severity
    thing: Thing
    names: list[str]
    """The first ones that it happened to."""
    text: str
    """What, without the names."""
    everywhere: bool
    """Every broker sees it; otherwise this one alone."""
    count: int = 1
    last_ms: int = 0


class Happenings:
    def __init__(self, most: int = MOST) -> None:
        self._rows: deque[Happening] = deque(maxlen=most)
        self.number = 0

    def note(
        self,
        now_ms: int,
        kind: str,
        severity: Severity,
        thing: Thing,
        name: str,
        text: str,
        *,
        everywhere: bool = True,
    ) -> None:
        self.number += 1
        for row in islice(reversed(self._rows), LOOK_BACK):
            if now_ms - row.last_ms > FOLD_MS:
                break
            if (row.kind, row.text, row.thing) != (kind, text, thing):
                continue
            if name not in row.names:
                row.count += 1
                if len(row.names) < MOST_NAMES:
                    row.names.append(name)
            row.last_ms, row.number = now_ms, self.number
            return
        self._rows.append(
            Happening(self.number, now_ms, kind, severity, thing, [name], text, everywhere, last_ms=now_ms)
        )

    def rows(self) -> list[Happening]:
        """The newest first."""
        return list(reversed(self._rows))
