"""Machine: which leader epoch began at which offset; what finds the point where two replicas part (R10, R22).

Invariant: epochs and start offsets both rise strictly. An epoch that wrote nothing is kept only as the last entry.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import NamedTuple

from headrace.log.checkpoints import DamagedFile, seal, unseal

_VERSION = 1
UNDEFINED = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest known epoch at or below the one asked for, and where it ends. -1, -1: no epoch is known."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED

    @property
    def latest_start(self) -> int:
        return self._starts[-1] if self._starts else UNDEFINED

    @property
    def entries(self) -> list[EpochStart]:
        return [EpochStart(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    def assign(self, epoch: int, start_offset: int) -> bool:
        """From `start_offset` on batches carry `epoch`. False when that was known."""
        if epoch < 0 or (self._epochs and epoch <= self._epochs[-1]):
            return False
        while self._starts and self._starts[-1] >= start_offset:
            # The epochs before wrote nothing from here on, so nothing can carry them (KIP-279).
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def restore(self, entries: list[EpochStart]) -> None:
        """As they were: what was assigned since could not be written down."""
        self._epochs[:] = [entry.epoch for entry in entries]
        self._starts[:] = [entry.start_offset for entry in entries]

    def epoch_at(self, offset: int) -> int:
        """The epoch of the batch at `offset`, -1 below everything known."""
        found = bisect_right(self._starts, offset) - 1
        return self._epochs[found] if found >= 0 else UNDEFINED

    def epoch_end(self, epoch: int, log_end: int) -> EpochEnd:
        """R22. The latest epoch ends at the log's end. An epoch older than all known ended where the first begins:
        its batches are below the log's start here."""
        if epoch < 0 or not self._epochs:
            return EpochEnd(UNDEFINED, UNDEFINED)
        found = bisect_right(self._epochs, epoch) - 1
        if found < 0:
            return EpochEnd(epoch, self._starts[0])
        last = found + 1 == len(self._epochs)
        return EpochEnd(self._epochs[found], log_end if last else self._starts[found + 1])

    def truncate_end(self, offset: int) -> None:
        """R23: the log ends at `offset` now; epochs that began there or later are forgotten."""
        while self._starts and self._starts[-1] >= offset:
            self._epochs.pop()
            self._starts.pop()

    def truncate_start(self, offset: int) -> None:
        """No batch below `offset` is left; the epoch of the first batch is kept and begins there."""
        found = bisect_right(self._starts, offset) - 1
        if found < 0 or (found == 0 and self._starts[0] == offset):
            return
        del self._epochs[:found], self._starts[:found]
        self._starts[0] = offset

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()

    def encode(self) -> bytes:
        entries = list(zip(self._epochs, self._starts, strict=True))
        return seal("epochs", _VERSION, json.dumps(entries).encode() + b"\n")

    @classmethod
    def decode(cls, data: bytes) -> LeaderEpochs:
        try:
            entries = json.loads(unseal("epochs", _VERSION, data))
            pairs = [(int(epoch), int(start)) for epoch, start in entries]
        except (UnicodeDecodeError, json.JSONDecodeError, TypeError, ValueError) as error:
            raise DamagedFile(f"epochs: {error}") from None
        cache = cls()
        for epoch, start in pairs:
            if cache._epochs and (epoch <= cache._epochs[-1] or start <= cache._starts[-1]):
                raise DamagedFile("epochs out of order")
            cache._epochs.append(epoch)
            cache._starts.append(start)
        return cache
