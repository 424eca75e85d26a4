"""Machine: what is remembered of topics that were deleted, and for how long.

A note is written by the deletion itself. Invariant: a topic begins with a leader epoch above every one that a topic of its name has had,
as long as that is remembered. Kafka's begin at 0, and librdkafka, which keeps leaders by name, then takes the leaders of the new topic for
old news and reads nothing more (seen with 2.16; F1).
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.cluster import keys
from headrace.cluster.changes import Change, DeleteKey, Expect, PutKey
from headrace.cluster.image import ClusterImage
from headrace.cluster.state import (
    DELETED,
    MAX_EPOCH,
    DeletedTopic,
    InvalidState,
    PartitionState,
    TopicState,
    decode,
    encode,
)

KEEP_DELETED_MS = 30 * 24 * 60 * 60 * 1000
MAX_DELETED = 10_000
"""So many at most: a broker that was away for longer keeps what it has of them aside."""


def note_of(
    state: TopicState, name: str, partitions: Sequence[PartitionState | None], wall_ms: int
) -> PutKey:
    """`partitions`: as they were last known; a view has had the epochs of its source."""
    last = max((partition.leader_epoch for partition in partitions if partition is not None), default=-1)
    return PutKey(keys.opaque(DELETED, state.id), encode(DeletedTopic(name, wall_ms, last)))


def first_epoch(image: ClusterImage, name: str) -> int:
    """Of the partitions of a topic that is made now."""
    return min(image.last_epoch(name) + 1, MAX_EPOCH)


def forgotten(image: ClusterImage, wall_ms: int, controller: Expect) -> list[Change]:
    """Notes that nobody needs any more: no broker can be expected to come back with data of such a topic."""
    known: list[tuple[int, str]] = []
    for topic_id, raw in image.opaque(DELETED).items():
        try:
            known.append((decode(DeletedTopic, raw).deleted_ms, topic_id))
        except InvalidState:
            continue  # X27: of a newer version, or damaged; left alone
    known.sort()
    excess = max(0, len(known) - MAX_DELETED)
    return [
        Change((controller,), (DeleteKey(keys.opaque(DELETED, topic_id)),), "a deleted topic is forgotten")
        for number, (deleted_ms, topic_id) in enumerate(known)
        if number < excess or wall_ms - deleted_ms > KEEP_DELETED_MS
    ]
