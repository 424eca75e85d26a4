"""Machine: producer ids out of blocks that were reserved before use (R37).

A block is reserved by compare-and-swap in the coordinator, so no other broker has it. What is left of it when the process
ends is lost, never reused: nobody can know whether a producer holds an id from it.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from headrace.transactions.state import InvariantBreach


class ProducerIdBlock(NamedTuple):
    first: int
    size: int

    @property
    def end(self) -> int:
        return self.first + self.size


class ProducerIdAllocator:
    __slots__ = ("_blocks", "_next", "_refill_below", "highest")

    def __init__(self, refill_below: int = 100) -> None:
        self._blocks: deque[ProducerIdBlock] = deque()
        self._next = 0
        self.highest = 0
        """Where the blocks so far end."""
        self._refill_below = refill_below

    @property
    def remaining(self) -> int:
        return sum(block.end - max(block.first, self._next) for block in self._blocks)

    @property
    def wants_block(self) -> bool:
        """Time to reserve another one, before producers have to wait for it."""
        return self.remaining < self._refill_below

    def add_block(self, block: ProducerIdBlock) -> None:
        """Blocks only ever lie above the ones before: a reservation that went back would hand out ids twice."""
        if block.size <= 0 or block.first < self.highest:
            raise InvariantBreach(f"producer ids {block.first}..{block.end} after {self.highest}")
        self.highest = block.end
        self._blocks.append(block)

    def take(self) -> int | None:
        """A producer id nobody else has or had; None when a block has to be reserved first."""
        while self._blocks:
            block = self._blocks[0]
            producer_id = max(block.first, self._next)
            if producer_id < block.end:
                self._next = producer_id + 1
                return producer_id
            self._blocks.popleft()
        return None
