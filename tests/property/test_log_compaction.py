"""Compaction against a dictionary: whatever is written, aborted and compacted, a consumer ends up with the same values."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_bench import SMALL, WALL_MS, data_batch, headers, marker, open_log, open_transactions, put, read_all

from headrace.core.plan import Rejected
from headrace.log.compaction import Compaction
from headrace.log.config import HOUR_MS
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import RollReason
from headrace.records.batch import read_header, scan
from headrace.records.read import read_control, read_records

KEYS = [b"a", b"b", b"c", b"d", b"e"]
PIDS = (7, 8)


def consume_committed(log: PartitionLog, start: int, upto: int) -> dict[bytes, bytes | None]:
    """What a read_committed client makes of fetches from `start` on: it leaves out aborted producers until their marker."""
    table: dict[bytes, bytes | None] = {}
    aborted: set[int] = set()
    offset = start
    while offset < upto:
        data = log.read(offset, 300, upto)
        assert not isinstance(data, Rejected)
        if not data:
            break
        end = headers(data)[-1].next_offset
        waiting = [entry for entry in log.aborted_transactions(offset, end) if entry.first_offset < end]
        for at, header in scan(data):
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborted.add(waiting.pop(0).producer_id)
            if header.is_control:
                found = read_control(data, at)
                if found is not None and not found.commit:
                    aborted.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in aborted:
                continue
            for record in read_records(data, at, max_bytes=1 << 20):
                assert record.key is not None
                if record.offset >= start:
                    table[record.key] = record.value
        offset = end
    return table


class CompactionMachine(RuleBasedStateMachine):
    @initialize(
        map_entries=st.sampled_from([2, 5, 1000]),
        delete_retention_ms=st.sampled_from([0, 3 * HOUR_MS]),
        segment_bytes=st.sampled_from([500, 2000]),
    )
    def begin(self, map_entries: int, delete_retention_ms: int, segment_bytes: int) -> None:
        self.config = replace(
            SMALL,
            compact=True,
            delete=False,
            segment_bytes=segment_bytes,
            compaction_map_bytes=map_entries * 176,
            delete_retention_ms=delete_retention_ms,
            min_cleanable_dirty_ratio=0.0,
        )
        self.fs = MemoryFileSystem()
        self.log, _ = open_log(self.fs, self.config)
        self.log.start_epoch(0)
        self.events: list[tuple[int, int | None, bytes, bytes | None]] = []
        """(offset, producer of its transaction, key, value) of all that was ever written."""
        self.ends: dict[int, list[tuple[int, bool]]] = {pid: [] for pid in PIDS}
        """Producer -> (offset of the marker, commit) in order."""
        self.sequences: dict[int, int] = {}
        self.now_ms = 0
        self.counter = 0
        self.run: Compaction | None = None

    def _note(self, base: int, pid: int | None, keys: list[bytes], values: list[bytes | None]) -> None:
        self.events += [(base + i, pid, key, values[i]) for i, key in enumerate(keys)]

    def _values(self, keys: list[bytes], tombstone: bool) -> list[bytes | None]:
        self.counter += 1
        return [None if tombstone else b"%d" % self.counter for _ in keys]

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        tombstone=st.booleans(),
        codec=st.integers(0, 4),
    )
    def write(self, keys: list[bytes], tombstone: bool, codec: int) -> None:
        values = self._values(keys, tombstone)
        base = put(self.log, data_batch(values, keys=keys, codec=codec)).base_offset
        self._note(base, None, keys, values)

    @rule(
        pid=st.sampled_from(PIDS),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3),
        tombstone=st.booleans(),
    )
    def write_in_transaction(self, pid: int, keys: list[bytes], tombstone: bool) -> None:
        values = self._values(keys, tombstone)
        sequence = self.sequences.get(pid, 0)
        batch = data_batch(
            values, keys=keys, producer_id=pid, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        self._note(put(self.log, batch).base_offset, pid, keys, values)
        self.sequences[pid] = sequence + len(keys)

    @rule(pid=st.sampled_from(PIDS), commit=st.booleans())
    def end_transaction(self, pid: int, commit: bool) -> None:
        self.ends[pid].append((put(self.log, marker(pid, commit=commit)).base_offset, commit))

    @rule()
    def roll(self) -> None:
        self.log.roll(RollReason.REQUESTED)

    @rule(hours=st.integers(0, 4), upto_end=st.booleans())
    def compact(self, hours: int, upto_end: bool) -> None:
        self.finish()
        self.log.sync()
        self.now_ms += hours * HOUR_MS
        upto = self.log.end_offset if upto_end else self.log.end_offset // 2
        self.log.compact(WALL_MS + self.now_ms, self.now_ms, upto, forced=True)

    @rule()
    def begin_in_background(self) -> None:
        if self.run is None:
            self.log.sync()
            self.run = self.log.begin_compaction(
                WALL_MS + self.now_ms, self.now_ms, self.log.end_offset, forced=True
            )
            if self.run is not None:
                self.run.run()

    @precondition(lambda self: self.run is not None)
    @rule()
    def finish(self) -> None:
        if self.run is not None:
            self.log.finish_compaction(self.run)
            self.run = None

    @rule(clean=st.booleans(), lose=st.sampled_from([None, ".index", ".snapshot"]))
    def restart(self, clean: bool, lose: str | None) -> None:
        if self.run is not None:
            self.run.abandon()
            self.run = None
        self.log.sync()
        self.log.checkpoint()
        self.log.close(clean=clean)
        for name in self.fs.list_dir("/data/orders-0"):
            if lose is not None and name.endswith(lose):
                self.fs.remove(f"/data/orders-0/{name}")
        self.log, report = open_log(self.fs, self.config)
        assert not report.quarantined and not report.truncated_bytes

    def truth(self, upto: int) -> dict[bytes, tuple[int, bytes | None]]:
        """Key -> (offset, value) of its latest committed record below `upto`."""
        table: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, pid, key, value in self.events:
            if offset < upto and (pid is None or self._committed(pid, offset)):
                table[key] = (offset, value)
        return table

    def _committed(self, pid: int, offset: int) -> bool:
        return next((commit for marker_at, commit in self.ends[pid] if marker_at > offset), False)

    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        stable = self.log.producers.last_stable_offset(self.log.end_offset)
        start = data.draw(st.integers(0, stable))
        got = consume_committed(self.log, start, stable)
        for key, (offset, value) in self.truth(stable).items():
            if offset >= start:
                if value is None:
                    assert got.get(key) is None, "deleted, and nothing older comes back"
                else:
                    assert got.get(key) == value
        if start == 0:
            alive = {key for key, (_, value) in self.truth(stable).items() if value is not None}
            assert {key for key, value in got.items() if value is not None} == alive

    def teardown(self) -> None:
        if hasattr(self, "log"):
            stable = self.log.producers.last_stable_offset(self.log.end_offset)
            expected = {k: v for k, (_, v) in self.truth(stable).items() if v is not None}
            got = consume_committed(self.log, 0, stable)
            assert {k: v for k, v in got.items() if v is not None} == expected

    @invariant()
    def transactions_are_what_they_were(self) -> None:
        if not hasattr(self, "log"):
            return
        last_data = {pid: offset for offset, pid, _, _ in self.events if pid is not None}
        last_end = {pid: ends[-1][0] for pid, ends in self.ends.items() if ends}
        still_open = {pid for pid, offset in last_data.items() if offset > last_end.get(pid, -1)}
        assert set(open_transactions(self.log)) == still_open
        markers = {header.base_offset for header in headers(read_all(self.log)) if header.is_control}
        for entry in self.log.aborted_transactions(0, self.log.end_offset):
            assert entry.last_offset in markers, "an entry without its marker would swallow what comes later"

    @invariant()
    def sequences_are_remembered(self) -> None:
        for pid, following in getattr(self, "sequences", {}).items():
            producer = self.log.producers.get(pid)
            assert producer is not None and producer.batches[-1].last_sequence == following - 1
            again = read_header(
                data_batch(
                    [b"x"], keys=[b"a"], producer_id=pid, producer_epoch=0, base_sequence=following + 1
                )
            )
            assert isinstance(self.log.check_producer(again), Rejected)


CompactionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestCompactionAgainstADictionary = CompactionMachine.TestCase
