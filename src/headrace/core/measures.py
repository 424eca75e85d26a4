"""Kernel: what can be measured, without saying how it is shown.

A counter on a hot path is a plain int of its owner; at scrape time the owner describes it as a Family. Only the
histogram needs a type of its own. Nothing here locks: one event loop owns the numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

FamilyKind = Literal["counter", "gauge", "histogram"]

SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Half a millisecond to a long poll's end."""


class Sample(NamedTuple):
    labels: tuple[tuple[str, str], ...]
    value: float
    suffix: str = ""
    """`_bucket`, `_sum` or `_count` of a histogram; empty otherwise."""


class Family(NamedTuple):
    """All series of one metric name, as they are now."""

    name: str
    kind: FamilyKind
    help: str
    samples: Sequence[Sample]


class Collector(Protocol):
    """Anything that can say what it counts. Called once per scrape, so gauges are computed here."""

    def collect(self) -> Iterable[Family]: ...


class Histogram:
    """Counts per bucket and a sum; `observe` is one bisect and two additions."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS_BUCKETS) -> None:
        self.bounds = tuple(bounds)
        if not self.bounds or list(self.bounds) != sorted(set(self.bounds)):
            raise ValueError("histogram bounds must be present and strictly increasing")
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def samples(self, labels: tuple[tuple[str, str], ...] = ()) -> list[Sample]:
        """Cumulative buckets, sum and count, as the text exposition wants them."""
        out: list[Sample] = []
        seen = 0
        for bound, bucket in zip(self.bounds, self.counts, strict=False):
            seen += bucket
            out.append(Sample((*labels, ("le", format(bound, "g"))), seen, "_bucket"))
        seen += self.counts[-1]
        out.append(Sample((*labels, ("le", "+Inf")), seen, "_bucket"))
        out.append(Sample(labels, self.total, "_sum"))
        out.append(Sample(labels, seen, "_count"))
        return out


def counter(name: str, help_text: str, value: float, /, **labels: str) -> Family:
    """One counter series; families with many series build their samples themselves."""
    return Family(name, "counter", help_text, [Sample(tuple(labels.items()), value)])


def gauge(name: str, help_text: str, value: float, /, **labels: str) -> Family:
    return Family(name, "gauge", help_text, [Sample(tuple(labels.items()), value)])
