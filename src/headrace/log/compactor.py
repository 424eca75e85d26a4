"""Machine: compacting a log from within (S21): what is worth a pass, and swapping its result in.

Invariant: no value goes before what superseded it is in place; what changed under a pass makes its result worthless, and it is thrown away.
"""

from __future__ import annotations

from headrace.log.cleanable import find_cleanable
from headrace.log.compaction import Compaction, CompactionInput, CompactionReport, Group, LastBatch
from headrace.log.parts import LogParts
from headrace.log.snapshots import drop_snapshot
from headrace.log.swap import commit_swap, complete_swap


class Compactor:
    __slots__ = ("_is_unfinished", "_parts")

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts
        self._is_unfinished = False

    def begin(
        self, wall_ms: int, now_ms: int, start: int, end: int, upto: int, *, forced: bool
    ) -> Compaction | None:
        """A pass over the log of [start, end) that is worth making, None when there is none."""
        parts = self._parts
        believed_ms = parts.believed_ms(wall_ms, now_ms)
        if not parts.config.compact or parts.failure is not None:
            return None
        limit = min(parts.settled(upto), parts.flushes.durable_end)
        found = find_cleanable(
            parts.segments.closed,
            parts.active,
            parts.config,
            parts.compacted_to,
            start,
            limit,
            believed_ms,
            forced=forced or self._is_unfinished,
        )
        if found is None:
            return None
        derived = parts.derived
        return Compaction(
            parts.fs,
            parts.config,
            CompactionInput(
                found.segments,
                found.dirty_from,
                found.upto,
                derived.aborted.between(0, end),
                {pid: LastBatch(producer.last_offset, producer.epoch) for pid, producer in derived.producers},
                believed_ms,
            ),
        )

    def finish(self, done: Compaction, start: int) -> CompactionReport:
        """Swap the result in, oldest segments first. When the segments changed meanwhile (truncated, deleted) it is thrown away."""
        parts = self._parts
        current = {id(segment) for segment in parts.segments.closed}
        stale = any(id(segment) not in current for segment in done.input.segments)
        if stale or parts.failure is not None:
            done.abandon()
            return CompactionReport(0, 0, 0, False)
        freed = 0
        try:
            for group in done.groups:
                freed += sum(segment.size for segment in group.replaced) - group.cleaned.size
                self._swap_in(group)
        except OSError as error:
            parts.fail(f"a compaction could not be swapped in: {error}")
            raise
        parts.derived.aborted.replace(done.input.segments[0].base_offset, done.rewritten_to, done.aborted)
        for group in done.groups:
            parts.write_caches(group.cleaned)
            group.cleaned.index = None
        parts.compacted_to = max(parts.compacted_to, done.compacted_to)
        self._is_unfinished = done.compacted_to < done.input.upto
        parts.checkpoint(start)
        return CompactionReport(done.read_bytes, freed, len(done.groups), self._is_unfinished)

    def _swap_in(self, group: Group) -> None:
        parts, replaced, cleaned = self._parts, group.replaced, group.cleaned
        fs, directory, segments = parts.fs, parts.directory, parts.segments
        parts.sparse = True
        for segment in replaced:
            parts.cache.drop(segment.path)
            parts.flushes.forget(segment)
        commit_swap(fs, directory, cleaned.base_offset)
        for path in complete_swap(fs, directory, [segment.base_offset for segment in replaced]):
            segments.adopt_trash(path)
        segments.replace(segments.position_of(cleaned.base_offset), len(replaced), cleaned)
        parts.reader.forget()
        for segment in replaced[1:]:
            drop_snapshot(fs, directory, segment.base_offset)
