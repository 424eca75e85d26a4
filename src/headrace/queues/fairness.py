"""Machine: tenants take turns, so that one noisy tenant of fifty costs the others a fiftieth and not their day.

The rotation of a level holds the tenants that have something ready. One message each, round and round, until the
batch is full; who was served goes to the back (`Lanes.lease`).
"""

from __future__ import annotations

from itertools import islice

from headrace.queues.lanes import Lane, Level
from headrace.queues.ranges import Range, Refuse


def pick_turns(level: Level, limit: int, refuse: Refuse | None) -> list[tuple[Range, int]]:
    if len(level) == 1:
        lane = next(iter(level.values()))
        return [(run, lane.id) for run in lane.ready.head(limit, refuse)]
    waiting = list(islice(level.values(), limit))
    if refuse is None:
        shares = _shares([lane.ready.count for lane in waiting], limit)
        heads = [lane.ready.head(share) for lane, share in zip(waiting, shares, strict=True)]
    else:
        heads = _heads_of_willing(waiting, limit, refuse)
    return [(run, lane.id) for lane, head in zip(waiting, heads, strict=True) for run in head]


def _heads_of_willing(waiting: list[Lane], limit: int, refuse: Refuse) -> list[list[Range]]:
    """As above where some are refused, so that what a lane can give is known only by asking it."""
    share = limit // len(waiting)
    heads = [lane.ready.head(share, refuse) for lane in waiting]
    missing = limit - sum(map(_size, heads))
    for at, lane in enumerate(waiting):
        if missing <= 0:
            break
        before = _size(heads[at])
        if before == share:  # it may have more
            heads[at] = lane.ready.head(share + missing, refuse)
            missing -= _size(heads[at]) - before
    return heads


def _size(head: list[Range]) -> int:
    return sum(end - first for first, end in head)


def _shares(ready: list[int], limit: int) -> list[int]:
    """Dealt out one by one: `limit` among lanes that have `ready` each."""
    shares = [0] * len(ready)
    while limit > 0:
        hungry = [at for at, count in enumerate(ready) if shares[at] < count]
        if not hungry:
            break
        each = max(1, limit // len(hungry))
        for at in hungry[:limit]:
            share = min(each, ready[at] - shares[at], limit)
            shares[at] += share
            limit -= share
    return shares
