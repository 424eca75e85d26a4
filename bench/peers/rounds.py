"""Rows, and the turns of everybody who takes part in one: each round gives all the same work, who goes first changes."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers.servers import Peer, Unobtainable

Turns = Generator[dict[str, float], None, None]
"""Prepares, then does the work once for each value it yields: figures by name. Closed when there are enough."""


@dataclass(frozen=True)
class Size:
    """How much of everything. What is small is for a look; what is large is for figures."""

    name: str
    rounds: int
    megabytes: int
    requests: int
    alone: int
    """Requests of a single connection that waits for each answer."""
    paced: int
    """Messages at 1,000 a second."""
    queued: int
    idle_s: float
    topics: int
    members: int
    kills: int
    minutes: float


FULL = Size("full", 3, 200, 20_000, 2_000, 5_000, 2_000, 5.0, 1_000, 50, 3, 38)
SHORT = Size("short", 3, 20, 3_000, 200, 1_000, 240, 2.0, 50, 20, 1, 7.5)
TINY = Size("tiny", 1, 1, 64, 5, 50, 40, 0.2, 2, 1, 1, 5)


@dataclass(frozen=True)
class Goal:
    """Of issue 17: an absolute limit, or a multiple of what the best of some peers has."""

    limit: float
    of: tuple[str, ...] = ()
    side: str = "headrace"
    """Which of ours it is about."""


@dataclass(frozen=True)
class Figure:
    name: str
    more: bool = False
    """Whether more of it is better."""
    goal: Goal | None = None


@dataclass(frozen=True)
class Row:
    key: str
    title: str
    figures: tuple[Figure, ...]
    sides: tuple[type[Peer], ...]
    work: Callable[[Any, Size], Turns]
    fresh: bool = False
    """The work starts and stops the peer itself; it gets one without data."""
    rounds: int | None = None
    note: str = ""


@dataclass
class Found:
    """What a row brought: by side and figure the values of all rounds; by side why there are none."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    load: tuple[float, float] = (0.0, 0.0)


class Pool:
    """Peers that run, so that rows which follow each other share them."""

    def __init__(self, scratch: Path, tell: Callable[[str], None]) -> None:
        self._scratch = scratch
        self._tell = tell
        self._up: dict[type[Peer], Peer] = {}
        self._away: dict[type[Peer], str] = {}
        self.versions: dict[str, str] = {}
        self._count = 0

    def get(self, kind: type[Peer], *, fresh: bool = False) -> Peer:
        if kind in self._away:
            raise Unobtainable(self._away[kind])
        if kind in self._up and not fresh:
            return self._up[kind]
        try:
            self._count += 1
            peer = kind(self._scratch / str(self._count))
            self._tell(f"  {kind.name}: {'a new one' if fresh else 'starts'}")
            peer.obtain()
            if not fresh:
                self._start(peer)
                self._up[kind] = peer
        except Unobtainable as away:
            self._away[kind] = str(away)
            raise
        return peer

    def _start(self, peer: Peer) -> None:
        try:
            peer.start()
            self.versions[peer.name] = peer.version()
        except BaseException:
            peer.kill()
            raise

    def drop(self, kind: type[Peer]) -> None:
        """It does not do what it should any more: whoever wants it next gets a new one."""
        peer = self._up.pop(kind, None)
        if peer is not None:
            peer.kill()

    def keep(self, kinds: tuple[type[Peer], ...]) -> None:
        """Stop all others: who stands by uses the machine, too."""
        for kind in [kind for kind in self._up if kind not in kinds]:
            self._up.pop(kind).kill()

    def close(self) -> None:
        self.keep(())


def measure(row: Row, pool: Pool, size: Size, ends_at: float, tell: Callable[[str], None]) -> Found:
    found = Found(load=(os.getloadavg()[0], 0.0))
    pool.keep(() if row.fresh else row.sides)
    with contextlib.ExitStack() as stack:
        turns: dict[type[Peer], Turns] = {}
        for kind in row.sides:
            try:
                peer = pool.get(kind, fresh=row.fresh)
            except Unobtainable as away:
                found.missing[kind.name] = str(away)
                continue
            if row.fresh:
                stack.callback(peer.kill)
            turns[kind] = row.work(peer, size)
            stack.callback(turns[kind].close)
        for number in range(row.rounds or size.rounds):
            order = list(turns)
            for kind in order[number % len(order) :] + order[: number % len(order)] if order else ():
                if time.monotonic() > ends_at:
                    found.missing.setdefault(kind.name, "the time was up")
                    continue
                _turn(row, kind, turns, pool, found, tell)
    found.load = (found.load[0], os.getloadavg()[0])
    for side in [
        side for side in found.missing if side in found.values and found.missing[side] == "the time was up"
    ]:
        del found.missing[side]  # fewer rounds are rounds
    return found


def _turn(
    row: Row,
    kind: type[Peer],
    turns: dict[type[Peer], Turns],
    pool: Pool,
    found: Found,
    tell: Callable[[str], None],
) -> None:
    try:
        values = next(turns[kind])
    except Exception as failed:
        del turns[kind]
        pool.drop(kind)
        found.missing[kind.name] = f"failed: {type(failed).__name__}: {failed}"[:200]
        tell(f"  {kind.name}: {found.missing[kind.name]}")
        return
    tell(f"  {kind.name}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()))
    into = found.values.setdefault(kind.name, {})
    for name, value in values.items():
        into.setdefault(name, []).append(value)


def aloud(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
