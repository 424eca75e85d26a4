"""The log against a list of batches: whatever is appended, cut, rolled, closed or killed, reads and derived state agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_bench import SMALL, WALL_MS, data_batch, derived, headers, marker, open_log, produced, put

from headrace.core.plan import Rejected
from headrace.log.aborted import AbortedTxn
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.producers import ProducedBatch
from headrace.log.results import Duplicate, Flush, RollReason, StartReason
from headrace.records.batch import read_header, scan
from headrace.records.read import read_control, read_records

PIDS = (11, 12, 13)


def dumb_derived(batches: list[bytes]) -> tuple[object, ...]:
    """Producers, open and aborted transactions, epochs: straight from the batches, by the book."""
    producers: dict[int, tuple[int, list[ProducedBatch], int, int]] = {}
    aborted: list[AbortedTxn] = []
    for batch in batches:
        header = read_header(batch)
        pid = header.producer_id
        if pid < 0:
            continue
        epoch, written, coordinator, start = producers.get(pid, (header.producer_epoch, [], -1, -1))
        if header.producer_epoch != epoch:
            epoch, written = header.producer_epoch, []
        if header.is_control:
            found = read_control(batch)
            assert found is not None
            coordinator = max(coordinator, found.coordinator_epoch)
            producers[pid] = (epoch, written, coordinator, -1)
            if not found.commit and start >= 0:
                still_open = [p[3] for p in producers.values() if p[3] >= 0]
                stable = min(still_open, default=header.next_offset)
                aborted.append(AbortedTxn(pid, start, header.base_offset, stable))
            continue
        entry = ProducedBatch(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        if start < 0 and header.is_transactional:
            start = header.base_offset
        producers[pid] = (epoch, [*written, entry][-5:], coordinator, start)
    open_transactions = {pid: p[3] for pid, p in producers.items() if p[3] >= 0}
    return producers, open_transactions, sorted(aborted, key=lambda entry: entry.first_offset)


class LogMachine(RuleBasedStateMachine):
    @initialize(segment_bytes=st.sampled_from([750, 1500, 1 << 20]), interval=st.sampled_from([1, 128, 4096]))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.config = replace(
            SMALL, cache_interval_bytes=400, segment_bytes=segment_bytes, index_interval_bytes=interval
        )
        self.fs = MemoryFileSystem()
        self.log, _ = open_log(self.fs, self.config)
        self.batches: list[bytes] = []
        self.gone: list[bytes] = []
        """Of which nothing remembers anything, save the indexes of later segments."""
        self.first_base = 0
        self.lost_snapshots = False
        self.epochs: list[tuple[int, int]] = []
        self.latest_epoch = 0
        self.flush: Flush | None = None
        self.log.start_epoch(0)
        self.epochs.append((0, 0))

    # ---- what happens

    def _append(self, batch: bytearray) -> None:
        appended = put(self.log, batch)
        assert appended.base_offset == self.end
        self.batches.append(bytes(batch))

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else self.first_base

    @rule(count=st.integers(1, 4), size=st.integers(0, 150), ts=st.integers(-50, 50))
    def append(self, count: int, size: int, ts: int) -> None:
        self._append(data_batch([b"v" * size] * count, timestamps=[WALL_MS + ts + i for i in range(count)]))

    @rule(pid=st.sampled_from(PIDS), count=st.integers(1, 3), transactional=st.booleans(), bump=st.booleans())
    def produce(self, pid: int, count: int, transactional: bool, bump: bool) -> None:
        producer = self.log.producers.get(pid)
        epoch, sequence = 0, 0
        if producer is not None:
            epoch = producer.epoch + bump
            if not bump and producer.batches:
                sequence = producer.batches[-1].last_sequence + 1
        batch = produced(pid, sequence, count, epoch=epoch, transactional=transactional)
        verdict = self.log.check_producer(read_header(batch))
        if isinstance(verdict, Rejected):
            producer = self.log.producers.get(pid)
            assert producer is not None and producer.transaction_start >= 0 and not transactional
            return
        self._append(batch)
        again = self.log.check_producer(read_header(batch))
        assert again == Duplicate(self.end - count, self.end - 1, WALL_MS)

    @rule(pid=st.sampled_from(PIDS), commit=st.booleans(), coordinator=st.integers(0, 3))
    def end_transaction(self, pid: int, commit: bool, coordinator: int) -> None:
        producer = self.log.producers.get(pid)
        epoch = producer.epoch if producer is not None else 0
        if isinstance(self.log.producers.check_marker(pid, epoch, coordinator), Rejected):
            return
        self._append(marker(pid, commit=commit, epoch=epoch, coordinator_epoch=coordinator))

    @rule(more=st.integers(1, 3))
    def new_leader(self, more: int) -> None:
        self.latest_epoch += more
        epoch = self.latest_epoch
        self.log.start_epoch(epoch)
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end] + [(epoch, self.end)]

    @rule()
    def roll(self) -> None:
        self.log.roll(RollReason.REQUESTED)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.start_offset, self.end + 2))
        start = self.log.start_offset
        end = self.log.truncate(offset)
        if offset < self.end:
            self.batches = [batch for batch in self.batches if read_header(batch).next_offset <= offset]
            self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
            if self.end < start:  # the batch that was cut reached below the start: the log begins anew there
                self.first_base, self.batches, self.gone, self.epochs = self.end, [], [], []
        assert end == self.log.end_offset == self.end
        if self.end == self.log.start_offset and self.log.epochs.latest < 0:
            # F77: nothing is left of the log. An epoch that began below its start is remembered from the start on only,
            # since the restart that took the segments there, and so goes with the rest; there is nothing to compare.
            self.epochs = []
        if not self.epochs:
            self.new_leader(1)

    @rule()
    def begin_flush(self) -> None:
        if self.flush is None:
            self.flush = self.log.begin_flush()

    @precondition(lambda self: self.flush is not None)
    @rule()
    def end_flush(self) -> None:
        assert self.flush is not None
        for file in self.flush.files:
            file.sync()
        self.log.flush_done(self.flush)
        self.flush = None

    @rule(hw=st.integers(0, 100))
    def checkpoint(self, hw: int) -> None:
        pending = self.log.begin_checkpoint(hw)
        if pending is not None:
            for file in pending.files:
                self.fs.write_file(file.path, file.data)
            self.log.checkpoint_done(pending)

    @rule(data=st.data())
    def delete_some_records(self, data: st.DataObject) -> None:
        self.log.advance_start(data.draw(st.integers(0, self.end)), StartReason.DELETE_RECORDS)

    @rule(clean=st.booleans(), lose=st.sampled_from([None, ".index", ".snapshot", "state"]))
    def restart(self, clean: bool, lose: str | None) -> None:
        start = self.log.start_offset
        if self.flush is not None:
            self.end_flush()
        if not clean:
            self.log.checkpoint()
        self.log.close(clean=clean)
        for name in self.fs.list_dir("/data/orders-0"):
            if lose is not None and name.endswith(lose):
                self.fs.remove(f"/data/orders-0/{name}")
        self.log, report = open_log(self.fs, self.config)
        assert not report.quarantined and not report.truncated_bytes
        if not self.end and self.log.epochs.latest < 0:
            # A log that never had a batch has no past: whoever leads it says so again (decision 0045).
            self.log.start_epoch(self.epochs[-1][0])
        self.lost_snapshots |= lose == ".snapshot"
        if self.lost_snapshots and derived(self.log)[0] != dumb_derived(self.batches)[0]:
            # Segments below the start went with a restart, and nothing remembers their producers: neither now, nor (F77)
            # when snapshots were lost at an earlier one and what was written since is above what has to be read again.
            first = self.log._parts.segments[0].base_offset
            self.gone += [batch for batch in self.batches if read_header(batch).base_offset < first]
            self.batches = [batch for batch in self.batches if read_header(batch).base_offset >= first]
            self.first_base = max(self.first_base, first)
        if lose == "state":
            self.log.advance_start(start, StartReason.DELETE_RECORDS)
        assert self.log.start_offset == start

    # ---- what is always so

    @invariant()
    def bounds(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.end_offset == self.end
        assert self.log.durable_end <= self.log.end_offset
        assert self.log.size_bytes >= sum(map(len, self._alive()))

    def _alive(self) -> list[bytes]:
        return [b for b in self.batches if read_header(b).next_offset > self.log.start_offset]

    @invariant()
    def derived_state_is_a_function_of_the_log(self) -> None:
        if not hasattr(self, "log"):
            return
        producers, open_transactions, _, aborted = derived(self.log)
        expected_producers, expected_open, expected_aborted = dumb_derived(self.batches)
        assert producers == expected_producers
        assert open_transactions == expected_open
        start = self.log.start_offset
        for offset in {start, *(entry[1] for entry in self.epochs)}:
            if start <= offset < self.end:
                led = max(entry for entry in self.epochs if entry[1] <= offset)[0]
                assert self.log.epochs.epoch_at(offset) == led
        assert self.log.epochs.latest == self.epochs[-1][0]
        self._aborted_is_right(aborted, expected_aborted)  # type: ignore[arg-type]
        assert self.log.first_unstable_offset == min(expected_open.values(), default=None)  # type: ignore[attr-defined]

    def _aborted_is_right(self, found: list[AbortedTxn], expected: list[AbortedTxn]) -> None:
        """What readers must know of: each ABORT marker that they can meet and whose transaction has data in the log.

        Of a transaction whose data went with the segments in front there may be an entry still (F77): the index of the
        segment with the marker keeps it. It tells a reader to leave out what lies between the two, where nothing of that
        producer is but this transaction, and ends at the marker, which the reader meets: it hides nothing.
        """
        start = self.log.start_offset
        expected = [entry for entry in expected if entry.last_offset >= start]
        if not self.gone:
            assert found == expected
            return
        known = {entry.last_offset: entry for entry in dumb_derived(self.gone + self.batches)[2]}  # type: ignore[attr-defined]
        left = {entry.last_offset: entry for entry in expected}
        for entry in found:
            assert entry.last_offset >= start
            assert entry.producer_id == known[entry.last_offset].producer_id
            same = left.pop(entry.last_offset, None)
            if same is None:
                assert entry.first_offset < self.first_base, "an entry of nothing"
            else:
                assert max(entry.first_offset, self.first_base) == same.first_offset
            assert entry.last_stable_offset >= known[entry.last_offset].last_stable_offset
        assert not left, "an entry too few shows what was aborted"

    @rule(data=st.data(), max_bytes=st.sampled_from([0, 1, 200, 1000, 1 << 20]))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.log.start_offset, self.end))
        upto = data.draw(st.integers(offset, self.end + 3))
        out = self.log.read(offset, max_bytes, upto)
        assert not isinstance(out, Rejected)
        expected = [
            batch
            for batch in self.batches
            if read_header(batch).next_offset > offset and read_header(batch).next_offset <= upto
        ]
        got = bytes(out)
        assert b"".join(expected).startswith(got)
        found = headers(got)
        assert sum(header.size for header in found) == len(got)
        assert bool(found) == bool(expected)
        assert len(got) <= max_bytes or len(found) == 1

    @rule(ts=st.integers(WALL_MS - 60, WALL_MS + 60), data=st.data())
    def find_by_time(self, ts: int, data: st.DataObject) -> None:
        upto = data.draw(st.integers(0, self.end))
        records = [(o, t) for o, t in self._timestamps() if self.log.start_offset <= o < upto]
        found = self.log.offset_for_time(ts, upto)
        assert (found and found[:2]) == next(((o, t) for o, t in records if t >= ts), None)
        highest = self.log.max_timestamp_offset(upto)
        best = max((t for _, t in records), default=None)
        assert (highest and highest[:2]) == next(((o, t) for o, t in records if t == best), None)

    def _timestamps(self) -> Iterator[tuple[int, int]]:
        for batch in self.batches:
            for record in read_records(batch, max_bytes=1 << 20):
                yield record.offset, record.timestamp


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLogAgainstAList = LogMachine.TestCase


def test_f77_an_entry_whose_data_is_gone_hides_nothing() -> None:
    """The index of a segment remembers a transaction whose data went with the segment before; found by this model."""
    machine = LogMachine()
    machine.begin(segment_bytes=1 << 20, interval=1)
    machine.produce(pid=13, count=1, transactional=True, bump=False)
    machine.roll()
    machine.end_transaction(pid=11, commit=False, coordinator=0)
    machine.end_transaction(pid=13, commit=False, coordinator=0)
    machine.log.advance_start(2, StartReason.DELETE_RECORDS)
    machine.restart(clean=True, lose=".snapshot")
    machine.derived_state_is_a_function_of_the_log()
    log = machine.log
    assert log.aborted_transactions(0, 99) == [AbortedTxn(13, 0, 2, 3)]
    machine.produce(pid=13, count=2, transactional=True, bump=False)
    machine.end_transaction(pid=13, commit=True, coordinator=0)
    machine.derived_state_is_a_function_of_the_log()
    for offset in (2, 3):  # from the start of the log, and behind the marker
        data = log.read(offset, 1 << 20, log.end_offset)
        assert not isinstance(data, Rejected)
        assert committed(bytes(data), log.aborted_transactions(offset, log.end_offset)) == [3, 4]


def test_f77_snapshots_that_were_lost_at_an_earlier_restart() -> None:
    machine = LogMachine()
    machine.begin(segment_bytes=750, interval=1)
    machine.produce(bump=False, count=1, pid=11, transactional=False)
    machine.roll()
    machine.append(count=1, size=0, ts=0)
    machine.restart(clean=False, lose=".snapshot")
    machine.derived_state_is_a_function_of_the_log()
    machine.log.advance_start(1, StartReason.DELETE_RECORDS)
    machine.restart(clean=False, lose=None)
    machine.derived_state_is_a_function_of_the_log()


def committed(data: bytes, aborted: list[AbortedTxn]) -> list[int]:
    """The offsets that a read_committed consumer hands out."""
    found: list[int] = []
    waiting = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
    aborting: set[int] = set()
    for at, header in scan(data):
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborting.add(waiting.pop().producer_id)
        if header.is_control:
            aborting.discard(header.producer_id)
        elif header.producer_id not in aborting:
            found += [record.offset for record in read_records(data, at)]
    return found
