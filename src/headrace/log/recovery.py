"""Machine: from the files of a partition to a log that can be read and written.

What is below the recovery point was synced and is believed (reads check CRCs anyway); indexes that fit their log are
believed for what is below it. Everything beyond is read and checked, so a start after a clean stop reads no batch and
a start after a crash reads what came after the last checkpoint (S25).

At the first bytes that are not the next batch, one of three things happened (S3, S4):

    torn tail    nothing valid follows: a write that was cut short and never acknowledged. Cut it off.
    lost blocks  valid batches follow, but a whole sector in between is zero, or a segment ends early and the next one is
                 there: a power cut kept later blocks and lost earlier ones, which only happens to what was not synced.
                 Cut, keep the bytes in quarantine, say so. `refuse_holes` treats it as damage instead.
    damage       anything else, and anything below the recovery point. LogCorrupt; the files stay as they are. With
                 `repair` (explicit, S4) the log is cut there and the rest goes to quarantine.

Invariant: no batch below the recovery point is dropped without `repair`, and no byte of a valid batch is ever deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.core.ports import File, FileSystem
from headrace.log.aborted import AbortedTxn
from headrace.log.checkpoints import (
    DamagedFile,
    LogState,
    PartitionIdentity,
    decode_identity,
    encode_identity,
)
from headrace.log.config import LogConfig
from headrace.log.creation import begin, is_untouched
from headrace.log.derived import DerivedState
from headrace.log.epochs import LeaderEpochs
from headrace.log.index import BadIndex, SegmentSummary, encode_index, read_front, read_index
from headrace.log.names import (
    EPOCHS_FILE,
    INDEX,
    LOG,
    PARTITION_FILE,
    QUARANTINE,
    STATE_FILE,
    URGENT_STATE_FILE,
    index_path,
    log_path,
    offset_of,
    snapshot_path,
)
from headrace.log.producers import ProducerTable
from headrace.log.results import LoadReport, LogCorrupt, WrongTopic
from headrace.log.scanning import (
    SCAN_CHUNK_BYTES,
    BadBatch,
    Scanned,
    find_valid_batch,
    has_lost_sector,
    scan_file,
)
from headrace.log.segment import Segment
from headrace.log.segment_cache import SegmentCache
from headrace.log.segments import SegmentList
from headrace.log.snapshots import ensure_snapshot, load_newest, replace_cache, snapshot_offsets
from headrace.log.state_files import load_state, settle_state
from headrace.log.swap import finish_at_start
from headrace.records.batch import HEADER_BYTES, CorruptBatch, read_header


class RecoveredLog(NamedTuple):
    segments: SegmentList
    derived: DerivedState
    state: LogState
    end_offset: int
    report: LoadReport
    is_new: bool = False
    """No state and no epochs are on disk yet."""


def load(
    fs: FileSystem,
    directory: str,
    config: LogConfig,
    topic_id: bytes,
    wall_ms: int,
    cache: SegmentCache,
    repair: bool,
    refuse_holes: bool,
) -> RecoveredLog:
    return _Loader(fs, directory, config, wall_ms, cache, repair, refuse_holes).run(topic_id)


class _Found:
    """A segment on its way into the log."""

    __slots__ = ("aborted", "believed_bytes", "file", "segment", "size")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.size = 0
        self.file: File | None = None
        """Open only where batches are read: there may be thousands of segments (S17)."""
        self.believed_bytes = 0
        """So much of the log its index describes; what comes after is checked batch by batch."""
        self.aborted: list[AbortedTxn] = []
        """From its index."""

    @property
    def believed_offset(self) -> int:
        return self.segment.next_offset if self.believed_bytes else self.segment.base_offset


class _Loader:
    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        wall_ms: int,
        cache: SegmentCache,
        repair: bool,
        refuse_holes: bool,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._config = config
        self._wall_ms = wall_ms
        self._cache = cache
        self._repair = repair
        self._refuse_holes = refuse_holes
        self._report = LoadReport()
        self._derived = DerivedState()
        self._segments = SegmentList(fs, directory, cache)
        self._state = LogState(clock_ms=wall_ms)
        self._epochs_known = True

    def run(self, topic_id: bytes) -> RecoveredLog:
        self._fs.make_dirs(self._directory)
        names = self._fs.list_dir(self._directory)
        if is_untouched(self._fs, self._directory, names):
            return self._begin(topic_id, names)
        bases = self._log_bases()
        self._check_identity(topic_id, bases)
        notes, trash = finish_at_start(self._fs, self._directory)
        self._report.notes += notes
        for path in trash:
            self._segments.adopt_trash(path)
        bases = self._log_bases()
        self._load_state(bases)
        self._load_epochs(bases)
        bases = self._usable(bases)
        found = [self._find(base, base == bases[-1]) for base in bases]
        try:
            end_offset = self._finish(found, self._replay(found))
        except BaseException:
            for item in found:
                if item.file is not None:
                    item.file.close()
            raise
        return RecoveredLog(self._segments, self._derived, self._state, end_offset, self._report)

    def _begin(self, topic_id: bytes, names: list[str]) -> RecoveredLog:
        segment, created_ms = begin(self._fs, self._directory, names, topic_id, self._wall_ms)
        self._segments.add(segment)
        self._report.segments = 1
        state = LogState(clock_ms=created_ms, epochs_kept=0)
        return RecoveredLog(self._segments, self._derived, state, 0, self._report, is_new=True)

    # ---- small files

    def _log_bases(self) -> list[int]:
        names = self._fs.list_dir(self._directory)
        return [base for name in names if (base := offset_of(name, LOG)) is not None]

    def _check_identity(self, topic_id: bytes, bases: list[int]) -> None:
        path = f"{self._directory}/{PARTITION_FILE}"
        problem = "is missing"
        if self._fs.exists(path):
            try:
                found = decode_identity(self._fs.read_file(path))
            except DamagedFile as error:
                problem = f"is unreadable ({error})"
            else:
                if found.topic_id != topic_id:
                    raise WrongTopic(self._directory, found.topic_id, topic_id)
                # Until a state says more: time is believed only as fast as it passes (S23).
                self._state = LogState(clock_ms=min(found.created_ms, self._wall_ms))
                return
        if bases and not self._repair:
            # S12: batches of we do not know which topic. Not ours to adopt, not ours to delete.
            raise LogCorrupt(path, 0, bases[0], f"the partition file {problem} beside {len(bases)} segments")
        if bases:
            self._report.rebuilt.append(PARTITION_FILE)
        self._fs.write_file(path, encode_identity(PartitionIdentity(topic_id, self._wall_ms)))

    def _load_state(self, bases: list[int]) -> None:
        try:
            found = load_state(self._fs, self._directory)
        except DamagedFile as error:
            found = None
            self._report.notes.append(str(error))
            if not bases:
                # A restarted replica that crashed before its first segment: where it starts is lost with the file.
                path = f"{self._directory}/{STATE_FILE}"
                raise LogCorrupt(path, 0, 0, "unreadable, and there is no segment to go by") from None
            # Which of the two was newer can not be known, so neither counts from here on.
            self._remove_cache(f"{self._directory}/{URGENT_STATE_FILE}")
        if found is not None:
            self._state = found
            return
        if bases:
            # A log that ended before its first checkpoint has none yet; then everything is read, and it lacks nothing.
            if bases != [0] or self._fs.exists(f"{self._directory}/{EPOCHS_FILE}"):
                self._report.rebuilt.append(STATE_FILE)
            else:
                self._state = self._state._replace(epochs_kept=0)
            self._state = self._state._replace(log_start=bases[0], recovery_point=bases[0])

    def _load_epochs(self, bases: list[int]) -> None:
        path = f"{self._directory}/{EPOCHS_FILE}"
        try:
            if self._fs.exists(path):
                self._derived.epochs = LeaderEpochs.decode(self._fs.read_file(path))
                return
        except DamagedFile as error:
            self._report.notes.append(f"{EPOCHS_FILE}: {error}")
        if bases:
            self._epochs_known = False

    @property
    def _is_first_epoch(self) -> bool:
        """No epochs were ever written down: there has been one at most (decision 0045)."""
        return not self._epochs_known and not self._state.epochs_kept

    # ---- segments

    def _usable(self, bases: list[int]) -> list[int]:
        """Leave out the segments below the log's start; see that the first one is there."""
        start = self._state.log_start
        if self._state.restarting:
            for base in reversed(bases):
                self._segments.discard(Segment(log_path(self._directory, base), base))
            self._derived.epochs.clear()
            self._report.notes.append(f"finished starting over at offset {start}")
            return []
        while len(bases) > 1 and bases[1] <= start:
            self._segments.discard(Segment(log_path(self._directory, bases[0]), bases.pop(0)))
        if not bases:
            if self._state.recovery_point > start:
                self._damage(log_path(self._directory, start), 0, start, "every segment is missing")
            return []
        if bases[0] > start:
            detail = f"the log starts at {start}, but its first segment begins at {bases[0]}"
            self._damage(log_path(self._directory, bases[0]), 0, start, detail)
            self._state = self._state._replace(log_start=bases[0])
        return bases

    def _damage(self, path: str, position: int, offset: int, detail: str) -> None:
        if not self._repair:
            raise LogCorrupt(path, position, offset, detail)
        self._report.notes.append(f"repaired: {path} at byte {position} (offset {offset}): {detail}")
        recovery_point = min(self._state.recovery_point, max(offset, self._state.log_start))
        self._state = self._state._replace(recovery_point=recovery_point)

    def _find(self, base: int, is_last: bool) -> _Found:
        path = log_path(self._directory, base)
        found = _Found(Segment(path, base))
        log = self._fs.open(path, writable=False)
        try:
            found.size = log.size
            if self._epochs_known:
                self._believe_index(found, log, is_last)
        finally:
            log.close()
        return found

    def _believe_index(self, found: _Found, log: File, is_last: bool) -> None:
        """Use the index for what it describes if it fits the log and lies below the recovery point."""
        segment = found.segment
        path = index_path(self._directory, segment.base_offset)
        if not self._fs.exists(path):
            return
        file = self._fs.open(path, writable=False)
        try:
            summary, aborted, _ = read_front(file)
            if not self._fits(summary, segment.base_offset, log):
                return
            segment.restore(summary)
            if is_last or summary.size < log.size:
                segment.index = read_index(file)[1]
                segment.indexed_position = segment.index.positions[-1] if len(segment.index) else -1
        except BadIndex as error:
            self._report.notes.append(f"{path.rpartition('/')[2]}: {error}")
            found.segment = Segment(segment.path, segment.base_offset)
            return
        finally:
            file.close()
        found.believed_bytes = summary.size
        found.aborted = aborted

    def _fits(self, summary: SegmentSummary, base: int, log: File) -> bool:
        if summary.base_offset != base or summary.next_offset > self._state.recovery_point:
            return False
        if summary.size > log.size or summary.last_position < 0:
            return summary.size == log.size == 0
        try:
            header = read_header(log.read(summary.last_position, HEADER_BYTES))
        except CorruptBatch:
            return False
        return (
            header.base_offset == summary.last_base_offset
            and header.crc == summary.last_crc
            and summary.last_position + header.size == summary.size
        )

    # ---- replay

    def _replay(self, found: list[_Found]) -> int:
        """Walk all segments; read batches where nobody vouches for them or the producer table lacks them."""
        if not found:
            return self._state.log_start
        snapshot_offset = self._load_producers(found)
        end_offset = self._walk(found, snapshot_offset)
        if end_offset < snapshot_offset:
            # Repaired below a snapshot: an older one, and once more over what is left.
            snapshot_offset = self._load_snapshot(found, end_offset)
            for item in found:
                self._replay_producers(item, item.size, snapshot_offset)
        return end_offset

    def _walk(self, found: list[_Found], snapshot_offset: int) -> int:
        expected = found[0].segment.base_offset
        for position, item in enumerate(found):
            if position and item.segment.base_offset != expected:
                problem = self._check_seam(found, position, expected)
                if problem is not None:
                    return self._cut(found, position - 1, problem)
            for entry in item.aborted:
                self._derived.aborted.add(entry)
            try:
                if item.believed_bytes and item.believed_offset > snapshot_offset:
                    self._replay_producers(item, item.believed_bytes, snapshot_offset)
                if item.believed_bytes < item.size:
                    self._check_batches(item, snapshot_offset)
            except BadBatch as error:
                return self._cut(found, position, error)
            expected = item.segment.next_offset if item.size else item.segment.base_offset
        return expected

    def _load_producers(self, found: list[_Found]) -> int:
        """The newest usable snapshot in front of everything that has to be read; without one, the log's beginning."""
        unread = [item.believed_offset for item in found if item.believed_bytes < item.size]
        first_unread = unread[0] if unread else found[-1].believed_offset
        # One beyond the recovery point stands on batches that may be gone.
        return self._load_snapshot(found, min(first_unread, self._state.recovery_point))

    def _load_snapshot(self, found: list[_Found], not_above: int) -> int:
        first_base = found[0].segment.base_offset
        unreadable: list[str] = []
        loaded = load_newest(self._fs, self._directory, not_above, first_base, unreadable)
        self._report.notes += [f"{name} is unreadable" for name in unreadable]
        if loaded is None:
            if not_above > first_base:
                self._report.rebuilt.append("producers")
            loaded = first_base, ProducerTable()
        offset, self._derived.producers = loaded
        return offset

    def _gaps_allowed(self, before: Segment | None = None) -> bool:
        return self._config.compact or self._state.sparse > 0 or (before is not None and not before.dense)

    def _check_seam(self, found: list[_Found], position: int, expected: int) -> BadBatch | None:
        base, before = found[position].segment.base_offset, found[position - 1]
        if base > expected and self._gaps_allowed(before.segment):
            return None
        detail = f"the next segment begins at {base} where {expected} comes next"
        return BadBatch(before.size, expected, detail, short=base > expected)

    def _replay_producers(self, item: _Found, end: int, snapshot_offset: int) -> None:
        """Ground that is known to be good, read again only for the producers on it."""
        for batch in self._scan(item, 0, end, item.segment.base_offset, gaps=True):
            header = batch.header
            if header.producer_id >= 0 and header.base_offset >= snapshot_offset:
                self._derived.absorb(
                    header, batch.data, batch.at, header.base_offset, self._wall_ms, known_aborted=True
                )

    def _check_batches(self, item: _Found, snapshot_offset: int) -> None:
        segment, derived = item.segment, self._derived
        if not item.believed_bytes:
            segment.created_ms = segment.appended_ms = self._wall_ms
        expected, gaps = item.believed_offset, self._gaps_allowed()
        for batch in self._scan(item, item.believed_bytes, item.size, expected, gaps=gaps):
            header = batch.header
            if self._epochs_known:
                led = derived.epochs.epoch_at(header.base_offset)
                if header.leader_epoch != led:
                    detail = f"leader epoch {header.leader_epoch} where {led} led"
                    raise BadBatch(batch.position, segment.next_offset, detail)
            else:
                led = derived.epochs.latest
                if self._is_first_epoch and led not in (-1, header.leader_epoch):
                    detail = f"leader epoch {header.leader_epoch} where {led} led"
                    raise BadBatch(batch.position, segment.next_offset, detail)
                derived.epochs.assign(header.leader_epoch, header.base_offset)
            segment.note(header, header.base_offset, self._config.index_interval_bytes)
            if header.producer_id >= 0 and header.base_offset >= snapshot_offset:
                derived.absorb(header, batch.data, batch.at, header.base_offset, self._wall_ms)
            self._report.scanned_bytes += header.size
        if not item.believed_bytes and segment.next_offset <= self._state.recovery_point:
            # Nothing here came after the last checkpoint, so there should have been an index to believe.
            self._report.rebuilt.append(segment.path.rpartition("/")[2].removesuffix(LOG) + INDEX)

    def _scan(self, item: _Found, start: int, end: int, expected: int, *, gaps: bool) -> Iterator[Scanned]:
        if item.file is None:
            item.file = self._fs.open(item.segment.path)
        return scan_file(item.file, start, end, expected, gaps=gaps)

    # ---- the end of what can be believed

    def _cut(self, found: list[_Found], position: int, error: BadBatch) -> int:
        """End the log in segment `position`, at the bytes that are not the next batch."""
        item, later = found[position], found[position + 1 :]
        if item.file is None:
            item.file = self._fs.open(item.segment.path)
        keep = self._judge(item, item.file, later, error)
        if keep:
            self._fs.make_dirs(f"{self._directory}/{QUARANTINE}")
        # The recovery point goes down first: a log that ends below it would be taken for damaged.
        if self._state.recovery_point > error.offset:
            self._state = self._state._replace(recovery_point=max(error.offset, self._state.log_start))
            settle_state(self._fs, self._directory, self._state)
        for other in reversed(later):
            self._put_away(other, keep)
        if error.position < item.size:
            if keep:
                self._copy_tail(item.segment, item.file, error.position)
            else:
                self._report.truncated_bytes += item.size - error.position
            self._remove_cache(index_path(self._directory, item.segment.base_offset))
            item.file.truncate(error.position)
            item.file.sync()
            item.size = error.position
        del found[position + 1 :]
        self._fs.sync_dir(self._directory)
        return error.offset

    def _judge(self, item: _Found, file: File, later: list[_Found], error: BadBatch) -> bool:
        """Torn tail (False: cut), lost blocks (True: cut and keep), or damage (raise, or True under repair)."""
        synced = error.offset < self._state.recovery_point
        valid_at = find_valid_batch(file, error.position + 1, item.size, error.offset)
        valid_later = any(self._has_batch(other, error.offset) for other in later)
        if not synced and valid_at is None and not valid_later:
            return False
        seen_at = item.size if valid_at is None else valid_at
        hole = (valid_at is None and error.short) or has_lost_sector(
            file, error.position, seen_at, error.offset
        )
        if not synced and hole and not self._refuse_holes:
            self._report.notes.append(
                f"{item.segment.path} at byte {error.position} (offset {error.offset}): blocks that were never "
                f"written out, in front of blocks that were; the log ends here"
            )
            return True
        self._damage(item.segment.path, error.position, error.offset, error.detail)
        return True

    def _has_batch(self, other: _Found, offset: int) -> bool:
        file = self._fs.open(other.segment.path, writable=False)
        try:
            return find_valid_batch(file, 0, other.size, offset) is not None
        finally:
            file.close()

    def _put_away(self, other: _Found, keep: bool) -> None:
        """A segment behind the cut."""
        if other.file is not None:
            other.file.close()
        if not (keep and other.size):
            self._report.truncated_bytes += other.size
            self._segments.discard(other.segment)
            return
        name = other.segment.path.rpartition("/")[2]
        self._remove_cache(index_path(self._directory, other.segment.base_offset))
        self._fs.rename(other.segment.path, f"{self._directory}/{QUARANTINE}/{name}")
        self._report.quarantined.append(f"{QUARANTINE}/{name}")

    def _copy_tail(self, segment: Segment, file: File, position: int) -> None:
        name = f"{segment.path.rpartition('/')[2]}.from-{position}"
        path = f"{self._directory}/{QUARANTINE}/{name}"
        self._remove_cache(path)  # an earlier start may have got this far and no further
        copy = self._fs.open(path, create=True)
        try:
            while data := file.read(position, SCAN_CHUNK_BYTES):
                copy.append([data])
                position += len(data)
            copy.sync()
        finally:
            copy.close()
        self._fs.sync_dir(f"{self._directory}/{QUARANTINE}")
        self._report.quarantined.append(f"{QUARANTINE}/{name}")

    def _remove_cache(self, path: str) -> None:
        if self._fs.exists(path):
            self._fs.remove(path)

    # ---- ready

    def _finish(self, found: list[_Found], end_offset: int) -> int:
        state = self._state
        if found and state.log_start < end_offset < state.recovery_point:
            detail = f"the log ends here, but was synced up to {state.recovery_point}"
            self._damage(found[-1].segment.path, found[-1].size, end_offset, detail)
        if found and end_offset < state.log_start:
            if state.recovery_point > state.log_start:
                self._damage(
                    found[-1].segment.path, found[-1].size, end_offset, "the log ends below its start"
                )
            # Records were deleted up to an end that was not synced and is gone. The start still counts.
            for item in reversed(found):
                self._put_away(item, keep=False)
            found.clear()
        if not found:
            found.append(self._first_segment(state.log_start))
            end_offset = state.log_start
        self._settle(found)
        self._settle_derived(found[0].segment.base_offset, end_offset)
        self._state = self._state._replace(recovery_point=end_offset, restarting=0, epochs_kept=1)
        settle_state(self._fs, self._directory, self._state)
        self._report.segments = len(found)
        return end_offset

    def _first_segment(self, base: int) -> _Found:
        found = _Found(Segment(log_path(self._directory, base), base))
        found.file = self._fs.open(found.segment.path, create=True)
        self._fs.sync_dir(self._directory)
        return found

    def _settle(self, found: list[_Found]) -> None:
        """Sync what was only in the page cache, write the indexes that were missing, keep one file open."""
        for item in found:
            segment = item.segment
            if item.file is not None and item.believed_bytes < item.size:
                item.file.sync()
            self._segments.add(segment)
            if item is found[-1]:
                segment.file = item.file if item.file is not None else self._fs.open(segment.path)
                continue
            if segment.index is not None:
                aborted = self._derived.aborted.between(segment.base_offset, segment.next_offset)
                path = index_path(self._directory, segment.base_offset)
                replace_cache(self._fs, path, encode_index(segment.summary(), aborted, segment.index))
                segment.index = None
                segment.forget_recent()
            if item.file is not None:
                item.file.close()

    def _settle_derived(self, first_base: int, end_offset: int) -> None:
        derived, directory = self._derived, self._directory
        derived.aborted.truncate(end_offset)
        derived.aborted.drop_before(self._state.log_start)
        if not self._epochs_known and not self._is_first_epoch:
            self._report.rebuilt.append(EPOCHS_FILE)
        derived.epochs.truncate_end(end_offset + 1)  # an epoch that wrote nothing yet begins at the end (R10)
        derived.epochs.truncate_start(first_base)
        path, data = f"{directory}/{EPOCHS_FILE}", derived.epochs.encode()
        if not self._fs.exists(path) or self._fs.read_file(path) != data:
            self._fs.write_file(path, data)
        for offset in snapshot_offsets(self._fs, directory):
            if not first_base <= offset <= end_offset:
                self._remove_cache(snapshot_path(directory, offset))
        ensure_snapshot(self._fs, directory, first_base, end_offset, derived.producers)
        bases = {segment.base_offset for segment in self._segments}
        for name in self._fs.list_dir(directory):
            base = offset_of(name, INDEX)
            if base is not None and base not in bases:
                self._remove_cache(f"{directory}/{name}")  # S14: an index without a log
