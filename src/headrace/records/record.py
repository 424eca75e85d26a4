"""Codec: one record, as everybody hands it around.

In a module of its own, which is not compiled (decision 0073): brokers send records to each other, msgspec reads them by their
annotations, and mypyc leaves `type` in the place of each that is not a plain class.
"""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = -1
    offset: int = -1
