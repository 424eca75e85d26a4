"""Machine: with which sequence a producer begins in a log that does not know it (R39).

Such a log takes any first sequence: it may have forgotten the producer (R40), or be a topic that was made again while the
producer was writing. But up to five batches are under way at a time, and the first that arrives need not be the earliest:
that one was refused a moment ago, because its topic or leader was not there yet, or went into the log of the topic before.
It could never be stored once a later one is. And librdkafka takes the success of the later one for proof that the earlier was
stored, and reports it as delivered: acknowledged and lost.

So the first batch of such a producer is taken when it comes for the second time. Until then it is refused with an error that
makes the client send everything again that it has under way, in order, and so the earliest comes first.
"""

from __future__ import annotations

from headrace.log.producers import REMEMBERED_BATCHES
from headrace.records.batch import BatchHeader

MAX_PRODUCERS = 1_000
"""Who is forgotten because there are more just asks once more."""


class Beginnings:
    """Of one leadership: `forget` when the next one begins."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[tuple[int, int], tuple[int, int]] = {}
        """Producer id and epoch -> the earliest sequence that has come, and how many behind it may be under way."""

    def __len__(self) -> int:
        return len(self._asked)

    def may_begin(self, header: BatchHeader) -> bool:
        """Whether nothing before this batch is to be expected; else the client has to send it again."""
        producer, sequence = (header.producer_id, header.producer_epoch), header.base_sequence
        earliest, behind = self._asked.get(producer, (sequence + 1, 0))
        if sequence == earliest:
            del self._asked[producer]
            return True
        if sequence > earliest and behind > 0:
            self._asked[producer] = (earliest, behind - 1)
            return False
        # Earlier than any so far; or later, and the earliest was given up: it is not among what was under way.
        if len(self._asked) >= MAX_PRODUCERS:
            self._asked.clear()
        self._asked[producer] = (sequence, REMEMBERED_BATCHES - 1)
        return False

    def forget(self) -> None:
        self._asked.clear()
