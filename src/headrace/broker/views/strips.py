"""Machine: what is left of one partition under one filter, as far as it was looked at, and the bound on all of it.

A strip is a row of blocks, each the matching batches of a range of the source's offsets. Blocks are as good as the log
they were made from: when the log is cut or compacted, or another leadership began, the strip is empty again. Whatever lies
below the log's start is never asked for. All strips share one budget; what was used longest ago goes first.

Invariant: within [start, end) of a block its data holds every matching batch, and nothing else but control batches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.core.ports import Buffer

MERGED_BLOCK_BYTES = 256 * 1024
"""Small neighbours are joined up to this: a reader at the tail adds a few records at a time."""

_BLOCK_OVERHEAD = 400
_BATCH_OVERHEAD = 16


class Waiter(Protocol):
    def wake(self) -> None: ...


class Block:
    """What matched in [start, end) of the source."""

    __slots__ = ("data", "end", "epoch", "lasts", "positions", "start")

    def __init__(
        self, start: int, end: int, epoch: int, data: bytes, lasts: Sequence[int], positions: Sequence[int]
    ) -> None:
        self.start = start
        self.end = end
        self.epoch = epoch
        """Leader epoch of the last batch that was looked at."""
        self.data = data
        self.lasts = array("q", lasts)
        """The offset of the last match of each batch in `data`, and where the batch begins.

        By the last match and not by the last offset: a batch whose matches a reader has had already holds nothing for it,
        and librdkafka would take such an answer for one that is cut short.
        """
        self.positions = array("q", positions)

    @property
    def cost(self) -> int:
        return len(self.data) + _BLOCK_OVERHEAD + _BATCH_OVERHEAD * len(self.lasts)

    def part(self, offset: int, max_bytes: int, upto: int, *, whole_first: bool) -> tuple[Buffer, int]:
        """Batches with a match from `offset` on and below `upto`, at most `max_bytes`, and the offset behind them.

        That offset is the block's end when nothing was left out, so that the reader goes on in the next one.
        """
        lasts = self.lasts
        first, stop = bisect_right(lasts, offset - 1), bisect_right(lasts, upto - 1)
        if first >= stop:
            return b"", min(self.end, upto)
        begin = self.positions[first]
        limit, taken = begin + max_bytes, stop
        if self._position(stop) > limit:
            taken = bisect_right(self.positions, limit, first, stop) - 1
        if taken <= first:  # less than none is left when the first of all was larger than asked for (KIP-74)
            if not whole_first:
                return b"", offset
            taken = first + 1
        data = memoryview(self.data)[begin : self._position(taken)]
        return data, min(self.end, upto) if taken == stop else lasts[taken - 1] + 1

    def _position(self, number: int) -> int:
        return self.positions[number] if number < len(self.positions) else len(self.data)

    def joined(self, other: Block) -> Block:
        shift = len(self.data)
        return Block(
            self.start,
            other.end,
            other.epoch,
            self.data + other.data,
            [*self.lasts, *other.lasts],
            [*self.positions, *(shift + position for position in other.positions)],
        )


class FoundStrip(NamedTuple):
    data: Buffer
    seen_to: int
    """Up to here everything that matches is in `data`. The wanted offset itself when nothing is known there."""
    epoch: int
    is_full: bool
    """More is known, but it is too much for this reader now."""


class Strip:
    __slots__ = ("_blocks", "_budget", "_starts", "_state", "waiters")

    def __init__(self, budget: StripBudget) -> None:
        self._budget = budget
        self._blocks: list[Block] = []
        self._starts: list[int] = []
        self._state: object = None
        self.waiters: dict[Waiter, None] = {}
        """Woken when more is known."""

    def valid_for(self, state: object) -> None:
        """`state` names the log and its history. Another one than before: nothing that is held is true any more."""
        if state != self._state:
            self.clear()
            self._state = state

    def clear(self) -> None:
        for block in self._blocks:
            self._budget.drop(block)
        self._blocks.clear()
        self._starts.clear()

    def find(self, offset: int, max_bytes: int, upto: int) -> FoundStrip:
        """What is known from `offset` on: whole batches, the first one whatever its size (KIP-74)."""
        pieces: list[Buffer] = []
        position, epoch, left, is_full = offset, -1, max_bytes, False
        number = bisect_right(self._starts, offset) - 1
        while 0 <= number < len(self._blocks) and position < upto:
            block = self._blocks[number]
            if not block.start <= position < block.end:
                break
            self._budget.used(block)
            data, following = block.part(position, left, upto, whole_first=not pieces)
            epoch = block.epoch
            if data:
                pieces.append(data)
                left -= len(data)
            position = following
            is_full = position < min(block.end, upto)
            if is_full:
                break
            number += 1
        return FoundStrip(pieces[0] if len(pieces) == 1 else b"".join(pieces), position, epoch, is_full)

    def quiet_to(self, offset: int) -> int:
        """How far from `offset` on nothing matches, as far as is known."""
        number = bisect_right(self._starts, offset) - 1
        while 0 <= number < len(self._blocks):
            block = self._blocks[number]
            if not block.start <= offset < block.end or bisect_right(block.lasts, offset - 1) < len(
                block.lasts
            ):
                break
            offset = block.end
            number += 1
        return offset

    def add(self, block: Block) -> None:
        """Take a block; what it overlaps gives way to it."""
        first = bisect_right(self._starts, block.start)
        if first and self._blocks[first - 1].end > block.start:
            first -= 1
        stop = first
        while stop < len(self._blocks) and self._blocks[stop].start < block.end:
            self._budget.drop(self._blocks[stop])
            stop += 1
        if first and self._blocks[first - 1].end == block.start:
            before = self._blocks[first - 1]
            if len(before.data) + len(block.data) <= MERGED_BLOCK_BYTES:
                self._budget.drop(before)
                block = before.joined(block)
                first -= 1
        self._blocks[first:stop] = [block]
        self._starts[first:stop] = [block.start]
        self._budget.hold(block, self)

    def evict(self, block: Block) -> None:
        number = bisect_right(self._starts, block.start) - 1
        if 0 <= number < len(self._blocks) and self._blocks[number] is block:
            del self._blocks[number], self._starts[number]

    def forget_below(self, offset: int) -> None:
        """Retention passed: blocks that end below the log's start are never asked for again."""
        while self._blocks and self._blocks[0].end <= offset:
            self._budget.drop(self._blocks[0])
            del self._blocks[0], self._starts[0]

    def wake(self) -> None:
        woken = list(self.waiters)
        self.waiters.clear()
        for waiter in woken:
            waiter.wake()


class StripBudget:
    """The bytes that all strips of a broker may hold."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[int, tuple[Block, Strip]] = OrderedDict()
        self.used_bytes = 0

    def hold(self, block: Block, strip: Strip) -> None:
        """The newest always stays: somebody waits for it."""
        self._held[id(block)] = (block, strip)
        self.used_bytes += block.cost
        while self.used_bytes > self._max_bytes and len(self._held) > 1:
            _, (oldest, owner) = self._held.popitem(last=False)
            self.used_bytes -= oldest.cost
            owner.evict(oldest)

    def used(self, block: Block) -> None:
        self._held.move_to_end(id(block))

    def drop(self, block: Block) -> None:
        if self._held.pop(id(block), None) is not None:
            self.used_bytes -= block.cost
