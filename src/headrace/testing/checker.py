"""Machine: does a history of sends and polls contain something a Kafka-like log may never do?

The anomalies and what each is allowed under are those of correctness.md section 6, implemented from their
definitions. `check` reports all it finds; `Report.is_valid` says whether any of it is forbidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from headrace.testing.dependency_cycles import find_cycles
from headrace.testing.history import Key, OperationOutcome, RecordedOperation, Value
from headrace.testing.version_order import LogView, VersionOrder


@dataclass(frozen=True, slots=True)
class CheckOptions:
    uses_subscribe: bool = False
    """Consumers in a group may be moved, so positions between polls may jump."""
    uses_idempotence: bool = True
    uses_read_committed: bool = True
    infers_write_order: bool = True
    """Draw ww edges from offsets. Kafka does not isolate writes, so cycles through them are reported, not forbidden."""


class Anomaly(NamedTuple):
    name: str
    key: Key | None
    operations: tuple[int, ...]
    """Numbers of the operations involved."""
    detail: dict[str, Any]


class Lag(NamedTuple):
    ms: int
    process: int
    key: Key


@dataclass(slots=True)
class Report:
    anomalies: dict[str, list[Anomaly]] = field(default_factory=dict)
    forbidden: list[str] = field(default_factory=list)
    worst_realtime_lag: Lag | None = None
    consume_counts: dict[int, int] = field(default_factory=dict)
    """How often was a value consumed: times -> number of values, in committed transactions of subscribed clients."""

    @property
    def is_valid(self) -> bool:
        return not self.forbidden

    def names(self) -> set[str]:
        return set(self.anomalies)

    def describe(self, limit: int = 5) -> str:
        lines = [
            f"{'valid' if self.is_valid else 'INVALID'}: {', '.join(sorted(self.names())) or 'no anomalies'}"
        ]
        for name in self.forbidden:
            found = self.anomalies[name]
            lines.append(f"{name} x{len(found)}")
            lines.extend(
                f"  key {anomaly.key} ops {anomaly.operations} {anomaly.detail}" for anomaly in found[:limit]
            )
        return "\n".join(lines)


def check(operations: Sequence[RecordedOperation], options: CheckOptions | None = None) -> Report:
    options = options or CheckOptions()
    order = VersionOrder(operations)
    found: list[Anomaly] = []
    for search in (
        _inconsistent_offsets, _duplicates, _lost_writes, _unseen, _aborted_reads, _precommitted_reads,
        _inside_operations, _between_polls, _between_sends,
    ):  # fmt: skip
        found.extend(search(order))
    for name, cycle, is_pure_wr in find_cycles(order, with_write_order=options.infers_write_order):
        numbers = tuple(edge.source for edge in cycle)
        steps = [(edge.source, edge.kind, edge.target) for edge in cycle]
        found.append(Anomaly(name, None, numbers, {"cycle": steps, "pure_wr": is_pure_wr}))
    report = Report(worst_realtime_lag=_worst_lag(order), consume_counts=_consume_counts(order))
    for anomaly in found:
        report.anomalies.setdefault(anomaly.name, []).append(anomaly)
    report.forbidden = sorted(
        name for name, all_of_it in report.anomalies.items() if not _is_allowed(name, all_of_it, options)
    )
    return report


def _is_allowed(name: str, found: Sequence[Anomaly], options: CheckOptions) -> bool:
    if name == "int-send-skip" or name.startswith("G0"):
        return True
    if name in ("poll-skip", "nonmonotonic-poll"):
        return options.uses_subscribe
    if name == "duplicate":
        return not options.uses_idempotence
    if name == "precommitted-read":
        return not options.uses_read_committed
    if name.startswith("G1c"):
        return not any(anomaly.detail["pure_wr"] for anomaly in found)
    return False


# --- the log itself ---


def _inconsistent_offsets(order: VersionOrder) -> list[Anomaly]:
    return [
        Anomaly("inconsistent-offsets", key, (), {"offset": offset, "values": list(values)})
        for key, log in order.logs.items()
        for offset, values in log.values_at.items()
        if len(values) > 1
    ]


def _duplicates(order: VersionOrder) -> list[Anomaly]:
    return [
        Anomaly("duplicate", key, (), {"value": value, "offsets": [log.offsets[index] for index in indexes]})
        for key, log in order.logs.items()
        for value, indexes in log.indexes_of.items()
        if len(indexes) > 1
    ]


def _lost_writes(order: VersionOrder) -> list[Anomaly]:
    found = []
    for key, log in order.logs.items():
        bound = max(
            (indexes[0] for value, indexes in log.indexes_of.items() if order.was_read(key, value)),
            default=-1,
        )
        for value, indexes in log.indexes_of.items():
            if indexes[-1] > bound or order.was_read(key, value):
                continue
            writer = order.writer_of.get((key, value))
            if writer is not None and order.must_have_committed(writer):
                detail = {"value": value, "index": indexes[-1], "read_up_to": bound}
                found.append(Anomaly("lost-write", key, (writer.number,), detail))
    return found


def _unseen(order: VersionOrder) -> list[Anomaly]:
    missing: dict[Key, list[Value]] = {}
    for (key, value), writer in order.writer_of.items():
        if writer.outcome is OperationOutcome.OK and not order.was_read(key, value):
            missing.setdefault(key, []).append(value)
    return [Anomaly("unseen", key, (), {"values": values}) for key, values in missing.items()]


def _aborted_reads(order: VersionOrder) -> list[Anomaly]:
    found: list[Anomaly] = []
    for (key, value), readers in order.readers_of.items():
        writer = order.writer_of.get((key, value))
        if writer is None or writer.outcome is not OperationOutcome.FAIL:
            continue
        found.extend(
            Anomaly("G1a", key, (writer.number, reader.number), {"value": value})
            for reader in readers
            if reader.outcome is OperationOutcome.OK
        )
    return found


def _precommitted_reads(order: VersionOrder) -> list[Anomaly]:
    return [
        Anomaly("precommitted-read", key, (reader.number,), {"value": value})
        for (key, value), readers in order.readers_of.items()
        for reader in readers
        if order.writer_of.get((key, value)) is reader
    ]


# --- positions ---


def _indexes(log: LogView | None, records: Sequence[tuple[int | None, Value]]) -> list[tuple[int, Value]]:
    if log is None:
        return []
    placed = ((log.index(offset, value), value) for offset, value in records)
    return [(index, value) for index, value in placed if index is not None]


def _inside_operations(order: VersionOrder) -> list[Anomaly]:
    found: list[Anomaly] = []
    for operation in order.operations:
        for key in operation.polled_keys():
            if key not in operation.rebalanced:
                placed = _indexes(order.logs.get(key), operation.polled_from(key))
                found += _jumps(operation, operation, key, placed, "int-poll-skip", "int-nonmonotonic-poll")
        for key in operation.sent_keys():
            records = [(send.offset, send.value) for send in operation.sent_to(key)]
            placed = _indexes(order.logs.get(key), records)
            found += _jumps(operation, operation, key, placed, "int-send-skip", "int-nonmonotonic-send")
    return found


def _jumps(
    before: RecordedOperation,
    after: RecordedOperation,
    key: Key,
    placed: Sequence[tuple[int, Value]],
    skip: str | None,
    nonmonotonic: str,
) -> list[Anomaly]:
    found = []
    for (index, value), (next_index, next_value) in pairwise(placed):
        delta = next_index - index
        name = nonmonotonic if delta < 1 else skip if delta > 1 else None
        if name is not None:
            numbers = (before.number,) if before is after else (before.number, after.number)
            found.append(Anomaly(name, key, numbers, {"from": value, "to": next_value, "delta": delta}))
    return found


class _Position(NamedTuple):
    operation: RecordedOperation
    place: int
    value: Value


def _between_polls(order: VersionOrder) -> list[Anomaly]:
    """Per process: where the last OK poll of a key ended, against where the next one began."""
    found: list[Anomaly] = []
    positions: dict[int, dict[Key, _Position]] = {}
    for operation in order.operations:
        if operation.outcome is not OperationOutcome.OK:
            continue
        mine = positions.setdefault(operation.process, {})
        if operation.action in ("assign", "subscribe"):
            # Keys that stay listed keep their position; a key that comes back starts anew.
            positions[operation.process] = {key: mine[key] for key in operation.keys if key in mine}
            continue
        for key in operation.polled_keys():
            placed = _indexes(order.logs.get(key), operation.polled_from(key))
            if not placed:
                continue
            last = mine.get(key)
            if last is not None and key not in operation.rebalanced:
                both = [(last.place, last.value), placed[0]]
                found += _jumps(last.operation, operation, key, both, "poll-skip", "nonmonotonic-poll")
            mine[key] = _Position(operation, *placed[-1])
    return found


def _between_sends(order: VersionOrder) -> list[Anomaly]:
    found: list[Anomaly] = []
    positions: dict[tuple[int, Key], _Position] = {}
    for operation in order.operations:
        if operation.outcome is OperationOutcome.FAIL:
            continue
        for key in operation.sent_keys():
            records = [(send.offset, send.value) for send in operation.sent_to(key)]
            placed = _indexes(order.logs.get(key), records)
            if not placed:
                continue
            last = positions.get((operation.process, key))
            if last is not None:
                both = [(last.place, last.value), placed[0]]
                found += _jumps(last.operation, operation, key, both, None, "nonmonotonic-send")
            positions[operation.process, key] = _Position(operation, *placed[-1])
    return found


# --- reports that are not anomalies ---


def _worst_lag(order: VersionOrder) -> Lag | None:
    """The longest time between a record being known to exist and a poll that began without having reached it."""
    known_since = _known_since(order)
    worst: Lag | None = None
    assigned: dict[int, tuple[Key, ...]] = {}
    reached: dict[tuple[int, Key], int] = {}
    for operation in order.operations:
        if operation.outcome is not OperationOutcome.OK:
            continue
        if operation.action in ("assign", "subscribe"):
            before = assigned.get(operation.process, ())
            for key in operation.keys:
                if key not in before:
                    reached[operation.process, key] = -1
            assigned[operation.process] = operation.keys
            continue
        if not operation.polls():
            continue
        for key in dict.fromkeys((*assigned.get(operation.process, ()), *operation.polled_keys())):
            placed = _indexes(order.logs.get(key), operation.polled_from(key))
            if placed:
                reached[operation.process, key] = placed[-1][0]
            since = known_since(key, reached.get((operation.process, key), -1) + 1)
            if since is not None and since <= operation.invoked_ms:
                lag = Lag(operation.invoked_ms - since, operation.process, key)
                if worst is None or lag.ms > worst.ms:
                    worst = lag
    return worst


def _known_since(order: VersionOrder) -> Callable[[Key, int], int | None]:
    """When a record at this index or after it was first known to exist: an OK send, or anyone's poll."""
    first_known: dict[Key, list[int | None]] = {
        key: [None] * len(log.offsets) for key, log in order.logs.items()
    }
    for operation in order.operations:
        seen: list[tuple[Key, int | None, Value]] = []
        if operation.outcome is OperationOutcome.OK:
            seen += [(send.key, send.offset, send.value) for send in operation.sends()]
        for key in operation.polled_keys():
            seen += [(key, offset, value) for offset, value in operation.polled_from(key)]
        for key, offset, value in seen:
            log = order.logs.get(key)
            index = None if log is None else log.index(offset, value)
            if index is not None:
                known = first_known[key][index]
                if known is None or operation.completed_ms < known:
                    first_known[key][index] = operation.completed_ms
    for times in first_known.values():
        earliest: int | None = None
        for index in range(len(times) - 1, -1, -1):
            here = times[index]
            if here is not None and (earliest is None or here < earliest):
                earliest = here
            times[index] = earliest

    def known_since(key: Key, index: int) -> int | None:
        times = first_known.get(key, [])
        return times[index] if index < len(times) else None

    return known_since


def _consume_counts(order: VersionOrder) -> dict[int, int]:
    is_subscribed: dict[int, bool] = {}
    counts: dict[tuple[int, Key, Value], int] = {}
    for operation in order.operations:
        if operation.outcome is not OperationOutcome.OK:
            continue
        if operation.action in ("assign", "subscribe"):
            is_subscribed[operation.process] = operation.action == "subscribe"
        elif operation.action == "txn" and is_subscribed.get(operation.process, False):
            for key in operation.polled_keys():
                for _, value in operation.polled_from(key):
                    counted = (operation.process, key, value)
                    counts[counted] = counts.get(counted, 0) + 1
    distribution: dict[int, int] = {}
    for times in counts.values():
        distribution[times] = distribution.get(times, 0) + 1
    return dict(sorted(distribution.items()))
