"""Machine: a batch that was refused comes before those that were sent behind it (R39).

An idempotent producer has up to five batches under way on one connection. Between two of them a leader may become able to
take what it has just refused: it leads by now, it has its replicas back, it has room again. The second batch would then
overtake the first. A partition that has not heard of the producer yet could not tell: it takes any first sequence, because it
may have forgotten the producer (R40) or be a topic made again. And librdkafka takes the success of a later batch for proof that
the earlier one was stored, and reports it as delivered: acknowledged and lost.

So whatever follows a refused batch on its connection is refused too, with an error that makes the client send both again, until
the refused one is back. No longer than what can have been under way: a client that goes on without it has given it up.
"""

from __future__ import annotations

from headrace.log.producers import REMEMBERED_BATCHES
from headrace.records.batch import CorruptBatch, read_header

MAX_PLACES = 1_000
"""Of one connection: beyond it the oldest are forgotten."""

_Place = tuple[str, int, int, int]
"""Topic, partition, producer id, producer epoch."""


class Refusals:
    """Of one connection, and only from its first refusal on."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[_Place, tuple[int, int]] = {}
        """The sequence of the earliest batch that was refused, and how many behind it may still be on their way."""

    def __len__(self) -> int:
        return len(self._first)

    def add(self, topic: str, partition: int, batch: object) -> None:
        """This batch was refused."""
        found = _place(topic, partition, batch)
        if found is None:
            return
        place, sequence = found
        before = self._first.pop(place, None)
        if before is not None and before[0] < sequence:
            self._first[place] = before
            return
        if len(self._first) >= MAX_PLACES:
            del self._first[next(iter(self._first))]
        self._first[place] = (sequence, REMEMBERED_BATCHES - 1)

    def bar(self, topic: str, partition: int, batch: object) -> bool:
        """Whether this batch was sent behind one that was refused and is not back yet."""
        found = _place(topic, partition, batch)
        if found is None:
            return False
        place, sequence = found
        first = self._first.get(place)
        if first is None:
            return False
        refused, left = first
        if sequence <= refused or left == 0:
            del self._first[place]
            return False
        self._first[place] = (refused, left - 1)
        return True


def _place(topic: str, partition: int, batch: object) -> tuple[_Place, int] | None:
    """None: not a batch of an idempotent producer."""
    if not isinstance(batch, memoryview):
        return None
    try:
        header = read_header(batch)
    except CorruptBatch:
        return None
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return (topic, partition, header.producer_id, header.producer_epoch), header.base_sequence
