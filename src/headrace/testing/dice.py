"""Machine: every random choice of a simulated run, from one seed.

Forks by name draw from streams of their own, so that an extra draw of the network does not change what the disk
draws; a failing run stays recognisable while faults are taken out of it. `random.Random` seeded with a string is the
same in every process, whatever PYTHONHASHSEED is.
"""

from __future__ import annotations

import random
from collections.abc import MutableSequence, Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    __slots__ = ("_random", "seed")

    def __init__(self, seed: int | str) -> None:
        self.seed = str(seed)
        self._random = random.Random(self.seed)

    def fork(self, name: str) -> Dice:
        return Dice(f"{self.seed}/{name}")

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def between(self, low: int, high: int) -> int:
        """Both ends included."""
        return self._random.randint(low, high)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def exponential(self, mean: float) -> float:
        return self._random.expovariate(1 / mean)

    def pick(self, items: Sequence[T]) -> T:
        return items[self._random.randrange(len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        return self._random.sample(items, count)

    def subset(self, items: Sequence[T]) -> list[T]:
        """Each item with probability one half: the "swarm" that makes runs differ in kind, not only in detail."""
        return [item for item in items if self.chance(0.5)]

    def shuffle(self, items: MutableSequence[T]) -> None:
        self._random.shuffle(items)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)
