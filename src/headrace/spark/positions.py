"""Driver: options into offsets: which partitions are meant, and where reading starts and ends, as the cluster is now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition, is_internal
from headrace.spark.options import Positions, SourceOptions
from headrace.spark.sync_client import EARLIEST, LATEST, READ_COMMITTED, SyncClient


def find_partitions(
    client: SyncClient, options: SourceOptions, *, must_exist: bool = True
) -> list[TopicPartition]:
    """Every partition the options mean. A topic named in them has to exist; a pattern may match nothing yet.

    Not `must_exist`: what was there once may have been deleted, and the others are to be read."""
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        known = client.topics()
        names = [name for name in known if pattern.fullmatch(name) and not is_internal(name)]
        return sorted(TopicPartition(name, number) for name in names for number in known[name].leaders)
    wanted = set(options.subscribe) | {tp.topic for tp in options.assign}
    known = client.topics(sorted(wanted))
    missing = sorted(wanted - known.keys())
    if missing and must_exist:
        raise HeadraceError(
            ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {', '.join(missing)} does not exist on {options.access.bootstrap}",
        )
    existing = sorted(TopicPartition(name, number) for name in known for number in known[name].leaders)
    if not options.assign:
        return existing
    absent = sorted(set(options.assign) - set(existing))
    if absent and must_exist:
        raise HeadraceError(
            ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
            f"assign names {', '.join(map(str, absent))}, which do not exist",
        )
    return sorted(set(options.assign) & set(existing))


def topic_ids(client: SyncClient, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
    """Which topics these names mean, as the client last heard."""
    return {name: client.topic(name).topic_id for name in sorted({tp.topic for tp in partitions})}


def resolve(
    client: SyncClient,
    partitions: Iterable[TopicPartition],
    positions: Positions,
    isolation: int = READ_COMMITTED,
) -> dict[TopicPartition, int]:
    """The offset that `positions` mean for each partition now. A time later than every record means the end."""
    partitions = list(partitions)
    given = dict(positions.given)
    unknown = sorted(given.keys() - set(partitions))
    if unknown:
        raise HeadraceError(
            ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
            f"offsets are given for {', '.join(map(str, unknown))}, not read here",
        )
    chosen = {tp: given.get(tp, positions.everywhere) for tp in partitions}
    missing = [tp for tp, position in chosen.items() if position is None]
    if missing:
        raise HeadraceError(
            ErrorKind.INVALID_PARAMETER, f"no timestamp is given for {', '.join(map(str, missing))}"
        )
    fixed = {tp: int(p) for tp, p in chosen.items() if p is not None and p >= 0 and not positions.by_time}
    asked = {tp: int(p) for tp, p in chosen.items() if p is not None and tp not in fixed}
    found = client.list_offsets(asked, isolation) if asked else {}
    late = {tp: LATEST for tp, offset in found.items() if offset < 0}
    if late:
        found.update(client.list_offsets(late, isolation))
    return {**fixed, **found}


def earliest(client: SyncClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return client.list_offsets(dict.fromkeys(partitions, EARLIEST))


def latest(
    client: SyncClient, partitions: Iterable[TopicPartition], isolation: int = READ_COMMITTED
) -> dict[TopicPartition, int]:
    return client.list_offsets(dict.fromkeys(partitions, LATEST), isolation)


def records_in(client: SyncClient, max_bytes: int, ends: Mapping[TopicPartition, int]) -> int:
    """About how many records `max_bytes` are, by the average of what the partitions hold."""
    sizes = client.log_sizes({tp.topic for tp in ends})
    first = earliest(client, list(ends))
    stored = sum(sizes.get(tp, 0) for tp in ends)
    records = sum(max(0, end - first[tp]) for tp, end in ends.items() if tp in first)
    return max(1, int(max_bytes * records / stored)) if stored and records else 1 << 62
