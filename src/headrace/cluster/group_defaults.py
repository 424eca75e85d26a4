"""Machine: what brokers say about all groups: the default of each group config, and between what a group may set it.

Names, defaults and bounds are those of Kafka 4.3. There they come from a file that is read at start; here they are
configs of the cluster that can be changed while it runs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.cluster.config_keys import Check, ConfigKey, ConfigType, at_least, between, one_of
from headrace.core.limits import MAX_GROUP_MEMBERS

_POSITIVE: Final = at_least(1)


class Bounds(NamedTuple):
    """A number that a group may set for itself: its default, and the least and the most it may be."""

    default: ConfigKey
    low: ConfigKey | None
    """None: 0."""
    high: ConfigKey


def _bounds(
    prefix: str,
    suffix: str,
    words: str,
    values: tuple[int, int, int],
    checks: tuple[Check, Check, Check] = (_POSITIVE, _POSITIVE, _POSITIVE),
) -> Bounds:
    """`values` and `checks` in the order of the fields."""
    name = f"{prefix}{suffix}"
    own = f"{prefix.removeprefix('group.')}{suffix}"
    return Bounds(
        _number(name, values[0], f"{words} The default of the group config {own}.", checks[0]),
        _number(f"{prefix}min.{suffix}", values[1], f"The least that a group may set for {own}.", checks[1]),
        _number(f"{prefix}max.{suffix}", values[2], f"The most that a group may set for {own}.", checks[2]),
    )


def _number(name: str, default: int, words: str, check: Check) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, str(default), words, check)


CONSUMER_SESSION: Final = _bounds(
    "group.consumer.", "session.timeout.ms", "How long a KIP-848 member may be silent.", (45_000, 45_000, 60_000)
)  # fmt: skip
CONSUMER_HEARTBEAT: Final = _bounds(
    "group.consumer.", "heartbeat.interval.ms", "How often KIP-848 members report.", (5_000, 5_000, 15_000)
)
SHARE_SESSION: Final = _bounds(
    "group.share.", "session.timeout.ms", "How long a member of a share group may be silent.", (45_000, 45_000, 60_000)
)  # fmt: skip
SHARE_HEARTBEAT: Final = _bounds(
    "group.share.", "heartbeat.interval.ms", "How often members of share groups report.", (5_000, 5_000, 15_000)
)  # fmt: skip
LOCK_DURATION: Final = _bounds(
    "group.share.", "record.lock.duration.ms", "How long a share consumer holds a record.", (30_000, 15_000, 60_000),
    (between(1_000, 3_600_000), between(1_000, 30_000), between(30_000, 3_600_000)),
)  # fmt: skip
DELIVERY_COUNT: Final = _bounds(
    "group.share.", "delivery.count.limit", "How often a record is delivered before it is given up.", (5, 2, 10),
    (between(2, 25), between(2, 5), between(5, 25)),
)  # fmt: skip
RECORD_LOCKS: Final = _bounds(
    "group.share.", "partition.max.record.locks", "Records of one partition that a share group may hold at once.",
    (2_000, 100, 4_000), (between(100, 10_000), between(100, 2_000), between(2_000, 10_000)),
)  # fmt: skip
STREAMS_SESSION: Final = _bounds(
    "group.streams.", "session.timeout.ms", "How long a member of a streams group may be silent.", (45_000, 45_000, 60_000)
)  # fmt: skip
STREAMS_HEARTBEAT: Final = _bounds(
    "group.streams.", "heartbeat.interval.ms", "How often members of streams groups report.", (5_000, 5_000, 15_000)
)  # fmt: skip
STREAMS_INTERVAL: Final = _bounds(
    "group.streams.", "assignment.interval.ms", "How soon after an assignment of tasks the next may follow.",
    (1_000, 0, 15_000), (at_least(0), at_least(0), at_least(0)),
)  # fmt: skip
STREAMS_STANDBYS: Final = Bounds(
    _number(
        "group.streams.num.standby.replicas", 0,
        "Standbys of each stateful task. The default of the group config streams.num.standby.replicas.", at_least(0),
    ),
    None,
    _number(
        "group.streams.max.standby.replicas", 2,
        "The most that a group may set for streams.num.standby.replicas.", at_least(0),
    ),
)  # fmt: skip
STREAMS_DELAY: Final = _number(
    "group.streams.initial.rebalance.delay.ms", 3_000,
    "How long the first assignment of a streams group waits for more members. "
    "The default of the group config streams.initial.rebalance.delay.ms.", at_least(0),
)  # fmt: skip
STREAMS_MAX_SIZE: Final = _number(
    "group.streams.max.size", MAX_GROUP_MEMBERS, "Members a streams group may have.", between(1, MAX_GROUP_MEMBERS)
)  # fmt: skip
BOUNDS: Final = (
    CONSUMER_SESSION,
    CONSUMER_HEARTBEAT,
    SHARE_SESSION,
    SHARE_HEARTBEAT,
    LOCK_DURATION,
    DELIVERY_COUNT,
    RECORD_LOCKS,
    STREAMS_SESSION,
    STREAMS_HEARTBEAT,
    STREAMS_INTERVAL,
    STREAMS_STANDBYS,
)
LONGER_THAN: Final = (
    (CONSUMER_SESSION, CONSUMER_HEARTBEAT),
    (SHARE_SESSION, SHARE_HEARTBEAT),
    (STREAMS_SESSION, STREAMS_HEARTBEAT),
)

CONSUMER_MAX_SIZE: Final = _number(
    "group.consumer.max.size", MAX_GROUP_MEMBERS, "Members a KIP-848 group may have.", between(1, MAX_GROUP_MEMBERS)
)  # fmt: skip
SHARE_MAX_SIZE: Final = _number(
    "group.share.max.size", 200, "Members a share group may have.", between(1, 1_000)
)
CONSUMER_MIGRATION: Final = ConfigKey(
    "group.consumer.migration.policy", ConfigType.STRING, "bidirectional",
    "Which way groups may change between the classic and the KIP-848 protocol.",
    one_of("disabled", "upgrade", "downgrade", "bidirectional"),
)  # fmt: skip

GROUP_DEFAULTS: Final = (
    *(key for bounds in BOUNDS for key in bounds if key is not None),
    STREAMS_DELAY,
    STREAMS_MAX_SIZE,
    CONSUMER_MAX_SIZE,
    SHARE_MAX_SIZE,
    CONSUMER_MIGRATION,
)
