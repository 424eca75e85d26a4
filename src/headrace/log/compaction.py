"""Machine: one compaction pass over the closed segments of a log (kafka.md 5.4).

Two walks. The first learns the latest offset of every key in the part that was not compacted yet, as far as its memory
goes. The second writes all segments from the log's start to there anew, leaving out what is superseded:

- a record stays when no later one has its key; a record without a key goes;
- a tombstone stays for delete.retention.ms after the pass that first saw it: that pass writes the time it may go (the
  delete horizon, attribute bit 6) into the batch;
- records of aborted transactions go and never count as the latest of their key; a marker goes when none of its
  transaction's batches is left, after a horizon of its own (R52);
- offsets never change: a batch keeps its base and last offset whatever it loses, and one that loses everything stays as
  a bare header while it holds the last sequence of its producer (R40).

The pass only reads files of closed segments and writes `.cleaned` files, both through handles of its own, so a driver
may run `step` in a thread. PartitionLog.finish_compaction swaps the result in.

Invariant: the log reads the same for every key's latest value, from every offset, before, during and after.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.core.ports import File, FileSystem
from headrace.log.aborted import AbortedTxn
from headrace.log.config import LogConfig
from headrace.log.index import MAX_RELATIVE_OFFSET
from headrace.log.key_map import LatestOffsets
from headrace.log.names import CLEANED
from headrace.log.results import LogCorrupt
from headrace.log.scanning import BadBatch, Scanned, scan_file
from headrace.log.segment import Segment
from headrace.records.batch import BatchHeader, CorruptBatch, read_header
from headrace.records.read import RecordSpan, iter_spans, plain_body, read_control
from headrace.records.rebuild import rebuild_batch

_STEP_BYTES = 1 << 20
_WRITE_BYTES = 1 << 20


class LastBatch(NamedTuple):
    """Where a producer's sequence stands: its last data batch, or -1 when it only has markers, and its epoch."""

    last_offset: int
    epoch: int


class CompactionInput(NamedTuple):
    segments: Sequence[Segment]
    """The closed segments from the log's start on that may be rewritten."""
    dirty_from: int
    upto: int
    """Where the last of them ends."""
    aborted: Sequence[AbortedTxn]
    producers: dict[int, LastBatch]
    believed_ms: int


class Group(NamedTuple):
    """Old segments and the one made from them."""

    replaced: list[Segment]
    cleaned: Segment
    changed: bool


class CompactionReport(NamedTuple):
    read_bytes: int
    freed_bytes: int
    rewritten_segments: int
    unfinished: bool
    """The keys did not fit into memory: another pass is due at once."""


class RecordFate(Enum):
    KEEP = "as it is"
    DROP = "leave it out"


class Compaction:
    """`step` until it says False, then PartitionLog.finish_compaction; or `abandon`."""

    def __init__(self, fs: FileSystem, config: LogConfig, given: CompactionInput) -> None:
        self._fs = fs
        self._config = config
        self._given = given
        self._map = LatestOffsets(config.compaction_map_bytes)
        self._transactions = _Transactions(given.aborted)
        self._work = self._run()
        self._abandoned = False
        self._stepping = False
        self.compacted_to = given.dirty_from
        """How far the map reaches: everything below is compacted when this pass is swapped in."""
        self.rewritten_to = given.dirty_from
        """Where the last segment ends that the pass went through, be it beyond what the map reaches."""
        self.groups: list[Group] = []
        self.read_bytes = 0
        self._taken_bytes = 0
        self.kept_bytes = 0
        self.unreadable: list[int] = []
        """Where batches begin that can't be opened."""

    @property
    def input(self) -> CompactionInput:
        return self._given

    @property
    def aborted(self) -> list[AbortedTxn]:
        """The aborted transactions that still have both data and marker, of all whose marker the pass has read."""
        return self._transactions.still_aborted

    def step(self) -> bool:
        """Some bounded work. False when there is no more."""
        self._stepping = True
        try:
            more = next(self._work, None) is not None
        finally:
            self._stepping = False
        if self._abandoned:
            self._clear()
            return False
        return more

    def take_moved_bytes(self) -> int:
        """What was read and written since this was asked last."""
        moved = self.read_bytes + self.kept_bytes
        taken, self._taken_bytes = moved - self._taken_bytes, moved
        return taken

    def run(self) -> None:
        while self.step():
            pass

    def abandon(self) -> None:
        """Give up: remove what was written. The log is as it was. A step that still runs in a thread (its caller was
        cancelled) clears up itself when it ends; and what is left after a crash, the next start removes."""
        self._abandoned = True
        if not self._stepping:
            self._clear()

    def _clear(self) -> None:
        self._work.close()
        for group in self.groups:
            self._remove_cleaned(group.cleaned)
        self.groups = []

    def _run(self) -> Generator[int, None, None]:
        yield from self._learn()
        for replaced in self._grouped():
            writer = _GroupWriter(
                self._fs,
                self._config,
                self._given,
                self._map,
                self.compacted_to,
                self._transactions,
                replaced,
            )
            try:
                for batch in self._batches(replaced):
                    writer.take(batch)
                    if self._pause(batch):
                        yield 1
                self._keep(writer.finish())
                self.rewritten_to = replaced[-1].next_offset
            except BaseException:
                writer.discard()
                raise

    def _learn(self) -> Iterator[int]:
        """Fill the map from the dirty part, stopping at a batch boundary when it is full."""
        for batch in self._batches(self._given.segments):
            header = batch.header
            if header.base_offset >= self._given.upto:
                break
            if header.next_offset <= self._given.dirty_from:
                continue
            if (
                not header.is_control
                and not self._transactions.is_aborted(header)
                and not self._learn_batch(batch)
            ):
                return
            self.compacted_to = header.next_offset
            if self._pause(batch):
                yield 1
        self.compacted_to = self._given.upto

    def _learn_batch(self, batch: Scanned) -> bool:
        """False when the map has no room for its keys. What can't be opened has none, however many it claims (A5)."""
        opened = open_batch(batch)
        if opened is None:
            self.unreadable.append(batch.header.base_offset)
            return True
        body, spans = opened
        if not self._map.has_room(len(spans)):
            return False
        base = batch.header.base_offset
        for span in spans:
            if span.key_length >= 0:
                key = body[span.key_start : span.key_start + span.key_length]
                self._map.put(key, base + span.offset_delta)
        return True

    def _grouped(self) -> Iterator[list[Segment]]:
        """Neighbours that together fit one segment become one: compaction must not leave ever smaller files."""
        group: list[Segment] = []
        size = 0
        for segment in self._given.segments:
            if segment.base_offset >= self.compacted_to:
                break
            too_wide = group and segment.next_offset - group[0].base_offset > MAX_RELATIVE_OFFSET
            if group and (size + segment.size > self._config.segment_bytes or too_wide):
                yield group
                group, size = [], 0
            group.append(segment)
            size += segment.size
        if group:
            yield group

    def _batches(self, segments: Sequence[Segment]) -> Iterator[Scanned]:
        for segment in segments:
            file = self._fs.open(segment.path, writable=False)
            try:
                yield from scan_file(file, 0, segment.size, segment.base_offset, gaps=not segment.dense)
            except BadBatch as error:
                raise LogCorrupt(segment.path, error.position, error.offset, error.detail) from None
            finally:
                file.close()

    def _pause(self, batch: Scanned) -> bool:
        before = self.read_bytes
        self.read_bytes += batch.header.size
        return before // _STEP_BYTES != self.read_bytes // _STEP_BYTES

    def _keep(self, group: Group) -> None:
        if group.changed:
            self.kept_bytes += group.cleaned.size
            self.groups.append(group)
        else:
            self._remove_cleaned(group.cleaned)

    def _remove_cleaned(self, cleaned: Segment) -> None:
        path = cleaned.path + CLEANED
        if self._fs.exists(path):
            self._fs.remove(path)


class _Transactions:
    """What the pass knows of transactions; they reach across segments, so it lives as long as the pass."""

    __slots__ = ("_by_producer", "_known", "data_kept", "data_read", "still_aborted")

    def __init__(self, aborted: Sequence[AbortedTxn]) -> None:
        self._known = {entry.last_offset: entry for entry in aborted}
        self._by_producer: dict[int, list[AbortedTxn]] = {}
        for entry in aborted:  # in marker order, so in offset order for each producer
            self._by_producer.setdefault(entry.producer_id, []).append(entry)
        self.data_read: set[int] = set()
        """Producers with a transactional batch in the log, be it empty, since their last marker."""
        self.data_kept: dict[int, int] = {}
        """The same for what the pass keeps -> base offset of the first such batch."""
        self.still_aborted: list[AbortedTxn] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        entries = self._by_producer.get(header.producer_id)
        if entries is None or not header.is_transactional:
            return False
        found = bisect_right(entries, header.base_offset, key=lambda entry: entry.first_offset) - 1
        return found >= 0 and header.base_offset < entries[found].last_offset

    def end(self, header: BatchHeader, commit: bool) -> bool:
        """A marker was read. True when the log still had a batch of its transaction."""
        had_data = header.producer_id in self.data_read
        self.data_read.discard(header.producer_id)
        first_kept = self.data_kept.pop(header.producer_id, None)
        if first_kept is not None and not commit:
            known = self._known.get(header.base_offset)
            stable = header.next_offset if known is None else known.last_stable_offset
            entry = AbortedTxn(header.producer_id, first_kept, header.base_offset, stable)
            self.still_aborted.append(entry)
        return had_data


class _GroupWriter:
    """Filters the batches of one group into its `.cleaned` file."""

    def __init__(
        self,
        fs: FileSystem,
        config: LogConfig,
        given: CompactionInput,
        latest: LatestOffsets,
        compacted_to: int,
        transactions: _Transactions,
        replaced: list[Segment],
    ) -> None:
        self._fs = fs
        self._config = config
        self._given = given
        self._latest = latest
        self._compacted_to = compacted_to
        self._transactions = transactions
        self._replaced = replaced
        self._cleaned = Segment(replaced[0].path, replaced[0].base_offset)
        self._path = self._cleaned.path + CLEANED
        if fs.exists(self._path):
            fs.remove(self._path)
        self._file: File = fs.open(self._path, create=True)
        self._pending = bytearray()
        self._changed = len(replaced) > 1

    def take(self, batch: Scanned) -> None:
        header = batch.header
        kept = self._filter_marker(batch) if header.is_control else self._filter_data(batch)
        if kept is RecordFate.DROP:
            self._changed = True
            return
        if kept is RecordFate.KEEP:
            self._pending += memoryview(batch.data)[batch.at : batch.at + header.size]
        else:
            self._changed = True
            header = read_header(kept)
            self._pending += kept
        self._cleaned.note(header, header.base_offset, self._config.index_interval_bytes)
        if len(self._pending) >= _WRITE_BYTES:
            self._write()
        if header.is_transactional and not header.is_control:
            self._transactions.data_kept.setdefault(header.producer_id, header.base_offset)

    def finish(self) -> Group:
        self._write()
        cleaned = self._cleaned
        if self._changed:
            self._file.sync()
        self._file.close()
        cleaned.created_ms = min(segment.created_ms for segment in self._replaced)
        cleaned.appended_ms = max(segment.appended_ms for segment in self._replaced)
        if cleaned.next_offset != self._replaced[-1].next_offset or any(not s.dense for s in self._replaced):
            cleaned.dense = False
        cleaned.forget_recent()
        return Group(self._replaced, cleaned, self._changed)

    def discard(self) -> None:
        self._file.close()
        if self._fs.exists(self._path):
            self._fs.remove(self._path)

    def _write(self) -> None:
        if self._pending:
            self._file.append([self._pending])
            self._pending = bytearray()

    # ---- data

    def _filter_data(self, batch: Scanned) -> bytes | RecordFate:
        header = batch.header
        if header.is_transactional:
            self._transactions.data_read.add(header.producer_id)
        if header.base_offset >= self._compacted_to:
            # Beyond the map: a tombstone here must not go while the values in front of it are still to be found.
            return RecordFate.KEEP
        if self._transactions.is_aborted(header):
            return self._emptied(header)
        opened = open_batch(batch)
        if opened is None:
            return (
                RecordFate.KEEP
            )  # its CRC holds, so it is what the client sent; nothing in it can be judged
        body, spans = opened
        kept = [span for span in spans if self._stays(header, body, span)]
        if not kept:
            return self._emptied(header)
        horizon_ms = None
        if not header.has_delete_horizon and any(span.value_length < 0 for span in kept):
            horizon_ms = self._given.believed_ms + self._config.delete_retention_ms
        if len(kept) == len(spans) and horizon_ms is None:
            return RecordFate.KEEP
        return rebuild_batch(header, body, kept, delete_horizon_ms=horizon_ms)

    def _stays(self, header: BatchHeader, body: bytes, span: RecordSpan) -> bool:
        if span.key_length < 0:
            return False
        key = body[span.key_start : span.key_start + span.key_length]
        if header.base_offset + span.offset_delta < self._latest.latest(key):
            return False
        # The base timestamp of a batch with a horizon *is* the horizon.
        expired = header.has_delete_horizon and header.base_timestamp <= self._given.believed_ms
        return span.value_length >= 0 or not expired

    def _emptied(self, header: BatchHeader) -> bytes | RecordFate:
        """A batch without records is dropped, unless its producer's sequence hangs on it."""
        last = self._given.producers.get(header.producer_id)
        if last is None or last.last_offset != header.last_offset:
            return RecordFate.DROP
        return rebuild_batch(header, b"", []) if header.record_count else RecordFate.KEEP

    # ---- markers

    def _filter_marker(self, batch: Scanned) -> bytes | RecordFate:
        header = batch.header
        opened = open_batch(batch)
        try:
            marker = read_control(batch.data, batch.at)
        except CorruptBatch:
            marker = None
        if marker is None or opened is None:
            return RecordFate.KEEP
        if self._transactions.end(header, marker.commit) or header.base_offset >= self._compacted_to:
            return RecordFate.KEEP
        if not header.has_delete_horizon:
            horizon_ms = self._given.believed_ms + self._config.delete_retention_ms
            return rebuild_batch(header, *opened, delete_horizon_ms=horizon_ms)
        if header.base_timestamp > self._given.believed_ms or self._is_last_marker(header):
            return RecordFate.KEEP
        return RecordFate.DROP

    def _is_last_marker(self, header: BatchHeader) -> bool:
        """Its epoch is all that is known of the producer."""
        last = self._given.producers.get(header.producer_id)
        return last is not None and last.last_offset < 0 and last.epoch == header.producer_epoch


def open_batch(batch: Scanned) -> tuple[bytes, list[RecordSpan]] | None:
    """(plain body, its records), None when it can not be opened."""
    try:
        body = plain_body(batch.data, batch.at, batch.header, max_bytes=MAX_DECOMPRESSED_BYTES)
        return body, list(iter_spans(body, batch.header))
    except CorruptBatch:
        return None
