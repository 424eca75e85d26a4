"""Machine: from the records of a journal to the state of a shard. journal.py explains the records.

Records are collected while they are replayed, and become state in `finish`: only then is it known which checkpoint is
the newest whole one. What is collected is bounded by what the compacted journal holds.
"""

from __future__ import annotations

from headrace.core.plan import JournalRecord
from headrace.queues.board import Board, Queue
from headrace.queues.commands import Source
from headrace.queues.config import config_from_json
from headrace.queues.deadlines import NO_EPOCH, Dying, Lease, RetryEntry
from headrace.queues.facts import NO_LANE, Delta
from headrace.queues.journal import (
    CHECKPOINT,
    CONFIG,
    DEDUP,
    DELTA,
    PAUSE,
    CheckpointPart,
    Key,
    UnreadableRecord,
    decode_checkpoint_part,
    decode_config,
    decode_dedup_page,
    decode_delta,
    decode_key,
)
from headrace.queues.snapshot import SnapshotError, decode_snapshot
from headrace.queues.state import SourceState


class _Collected:
    """The live records of one source."""

    __slots__ = ("deltas", "pages", "parts")

    def __init__(self) -> None:
        self.parts: tuple[dict[int, CheckpointPart], dict[int, CheckpointPart]] = ({}, {})
        self.deltas: dict[int, Delta] = {}
        self.pages: dict[int, bytes] = {}

    @property
    def empty(self) -> bool:
        return not (self.parts[0] or self.parts[1] or self.deltas or self.pages)


class QueueReplay:
    __slots__ = ("_configs", "_paused", "_sources", "unreadable")

    def __init__(self) -> None:
        self._configs: dict[str, bytes] = {}
        self._paused: set[str] = set()
        self._sources: dict[Source, _Collected] = {}
        self.unreadable = 0
        """Records that were passed over: a newer broker's, or none of ours."""

    def collect(self, record: JournalRecord) -> None:
        try:
            key = decode_key(record.key)
            if key.letter == CONFIG:
                _put(self._configs, key.queue, None if record.value is None else decode_config(record.value))
            elif key.letter == PAUSE:
                (self._paused.discard if record.value is None else self._paused.add)(key.queue)
            else:
                self._collect_for_source(key, record.value)
        except UnreadableRecord:
            self.unreadable += 1

    def _collect_for_source(self, key: Key, value: bytes | None) -> None:
        source = key.source
        assert source is not None
        collected = self._sources.get(source)
        if collected is None:
            collected = self._sources[source] = _Collected()
        if key.letter == CHECKPOINT and key.side in (0, 1):
            _put(
                collected.parts[key.side],
                key.number,
                None if value is None else decode_checkpoint_part(value),
            )
        elif key.letter == DELTA:
            _put(
                collected.deltas,
                key.number,
                None if value is None else decode_delta(source, key.number, value),
            )
        elif key.letter == DEDUP:
            _put(collected.pages, key.number, value)

    def finish(self, board: Board) -> list[tuple[SourceState, list[Delta]]]:
        """Fill the board with what checkpoints say; returns the deltas to be applied on top, in order."""
        for name, raw in self._configs.items():
            queue = board.queues[name] = Queue(config_from_json(raw))
            queue.paused = name in self._paused
        todo: list[tuple[SourceState, list[Delta]]] = []
        for source, collected in self._sources.items():
            if source.queue in board.queues and not collected.empty:
                partition = board.open(source)
                todo.append((partition, self._restore(partition, collected)))
        return todo

    def _restore(self, partition: SourceState, collected: _Collected) -> list[Delta]:
        at = partition.checkpoint
        at.parts = [1 + max(parts, default=-1) for parts in collected.parts]
        at.slots = 1 + max(collected.deltas, default=-1)
        for seq, side, image in sorted(_whole_checkpoints(collected), reverse=True):
            try:
                _load_snapshot(partition, image)
            except (SnapshotError, ValueError):
                self.unreadable += 1
                continue
            at.seq = at.base_seq = seq
            at.side = side
            at.bytes = len(image)
            break
        for number, value in sorted(collected.pages.items()):
            try:
                partition.dedup.learn(number, decode_dedup_page(value))
            except UnreadableRecord:
                self.unreadable += 1
        return sorted(
            (delta for delta in collected.deltas.values() if delta.seq > at.seq), key=lambda one: one.seq
        )


def _whole_checkpoints(collected: _Collected) -> list[tuple[int, int, bytes]]:
    whole: list[tuple[int, int, bytes]] = []
    for side, parts in enumerate(collected.parts):
        first = parts.get(0)
        if first is None:
            continue
        pieces = [parts.get(number) for number in range(first.parts)]
        if all(piece is not None and piece[:2] == first[:2] for piece in pieces):
            whole.append((first.seq, side, b"".join([piece.data for piece in pieces if piece is not None])))
    return whole


def _load_snapshot(partition: SourceState, image: bytes) -> None:
    """Deadlines are set by `restart_clocks`, when everything is there."""
    saved = decode_snapshot(image)
    partition.start_offset = partition.indexed_end = partition.end_offset = saved.start_offset
    partition.done.load_edges(saved.done)
    partition.moved.update(saved.moved)
    for offset, deliveries, delay_ms, first_received_ms, epoch in saved.retries:
        retry = RetryEntry(
            offset,
            deliveries,
            delay_ms=delay_ms,
            now_ms=0,
            first_received_ms=first_received_ms,
            epoch=epoch,
            lane=NO_LANE,
        )
        partition.retries[offset] = retry
        partition.resting += retry.held
    for offset, delivery, visibility_ms, epoch, first_received_ms in saved.leases:
        partition.leases[offset] = Lease(
            offset, offset + 1, 1, delivery, epoch=epoch, owner="", lane=NO_LANE, now_ms=0,
            visibility_ms=visibility_ms, received_ms=0, first_received_ms=first_received_ms, durable=True,
        )  # fmt: skip
    for offset, deliveries, reason, detail in saved.dying:
        partition.dying[offset] = Dying(offset, deliveries, reason, detail)


def restart_clocks(partition: SourceState, now_ms: int) -> None:
    """R58: what was running when the last leader went away runs again, in full, from now. Late, never early."""
    partition.deadlines.clear()
    for lease in {id(lease): lease for lease in partition.leases.values()}.values():
        lease.received_ms = now_ms
        lease.deadline_ms = now_ms + lease.visibility_ms
        partition.deadlines.push(lease)
    for retry in partition.retries.values():
        if not partition.config.journaled_leases:
            # It may have been delivered once more than the journal knows, so no receipt from before is the latest (R56).
            retry.epoch = NO_EPOCH
        if retry.held:
            retry.deadline_ms = now_ms + retry.delay_ms
            partition.deadlines.push(retry)


def _put(table: dict, key: object, value: object | None) -> None:  # type: ignore[type-arg]
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
