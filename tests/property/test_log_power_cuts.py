"""A log on a disk that loses power: whatever was synced is there again, and nothing false is (S3-S6, S9, R40)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from log_bench import (
    SMALL,
    WALL_MS,
    CrashingFileSystem,
    PowerCut,
    data_batch,
    derived,
    marker,
    open_log,
    open_transactions,
    produced,
    put,
    read_all,
    replayed,
)

from headrace.log.results import Flush, LoadReport, RollReason
from headrace.testing.dice import Dice
from headrace.testing.sim_disk import SimDisk


class PowerCutMachine(RuleBasedStateMachine):
    """The log may be cut anywhere; the model is the bytes it held, and how many of them were vouched for."""

    @initialize(seed=st.integers(0, 1 << 32), segment_bytes=st.sampled_from([750, 3000, 1 << 20]))
    def begin(self, seed: int, segment_bytes: int) -> None:
        self.config = replace(SMALL, cache_interval_bytes=400, segment_bytes=segment_bytes)
        self.disk = SimDisk(Dice(seed))
        self.crashing = CrashingFileSystem(self.disk.mount())
        self.log, _ = open_log(self.crashing, self.config)
        self.epoch = 1
        self.log.start_epoch(1)
        self.written = b""
        """All bytes in the log, in order."""
        self.durable_bytes = 0
        self.flush: Flush | None = None
        self.flush_bytes = 0

    def _append(self, batch: bytearray) -> None:
        put(self.log, batch)
        self.written += bytes(batch)

    @rule(count=st.integers(1, 3), size=st.integers(0, 150))
    def append(self, count: int, size: int) -> None:
        self._append(data_batch([b"%d" % len(self.written) + b"x" * size] * count))

    @rule(pid=st.integers(1, 3), transactional=st.booleans())
    def produce(self, pid: int, transactional: bool) -> None:
        producer = self.log.producers.get(pid)
        sequence = producer.batches[-1].last_sequence + 1 if producer is not None and producer.batches else 0
        self._append(
            produced(pid, sequence, transactional=transactional or pid in open_transactions(self.log))
        )

    @rule(pid=st.integers(1, 3), commit=st.booleans())
    def end_transaction(self, pid: int, commit: bool) -> None:
        self._append(marker(pid, commit=commit))

    @rule()
    def begin_flush(self) -> None:
        if self.flush is None:
            self.flush = self.log.begin_flush()
            self.flush_bytes = len(self.written)

    @rule()
    def end_flush(self) -> None:
        if self.flush is not None:
            for file in self.flush.files:
                file.sync()
            self.log.flush_done(self.flush)
            self.durable_bytes = max(self.durable_bytes, self.flush_bytes)
            self.flush = None

    @rule()
    def roll(self) -> None:
        self.log.roll(RollReason.REQUESTED)

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1
        self.log.start_epoch(self.epoch)

    @rule()
    def checkpoint(self) -> None:
        pending = self.log.begin_checkpoint()
        if pending is not None:
            for file in pending.files:
                self.crashing.write_file(file.path, file.data)
            self.log.checkpoint_done(pending)

    @rule(steps=st.integers(0, 12), data=st.data())
    def crash_soon(self, steps: int, data: st.DataObject) -> None:
        """Do a few things and lose power in the middle of one of them."""
        self.crashing.crash_at = len(self.crashing.steps) + steps
        try:
            for _ in range(20):
                data.draw(
                    st.sampled_from(
                        [self.begin_flush, self.end_flush, self.roll, self.checkpoint, self._fill]
                    )
                )()
        except PowerCut:
            pass
        self.cut(True)

    def _fill(self) -> None:
        self._append(data_batch([b"f" * 120]))

    @rule(power=st.booleans())
    def cut(self, power: bool) -> None:
        if power:
            self.disk.power_cut()
        self.crashing = CrashingFileSystem(self.disk.mount())
        self.log, report = open_log(self.crashing, self.config)
        self._check_loaded(report, power)
        self.flush = None
        self.epoch = max(self.epoch, self.log.epochs.latest) + 1
        self.log.start_epoch(self.epoch)

    def _check_loaded(self, report: LoadReport, power: bool) -> None:
        found = read_all(self.log)
        assert self.written.startswith(found), "nothing that was never there"
        assert len(found) >= self.durable_bytes, f"what was synced is gone: {report}"
        if not power:
            assert len(found) == len(self.written) and not report.quarantined
        self.written = found
        self.durable_bytes = len(found)

    @invariant()
    def derived_state_fits(self) -> None:
        if hasattr(self, "log"):
            again = replayed(self.crashing, self.config)
            if not self.log.end_offset and again.epochs.latest < 0:
                again.start_epoch(self.log.epochs.latest)  # no batch, so no past to remember (decision 0045)
            assert derived(self.log) == derived(again)
            assert self.log.durable_end <= self.log.end_offset

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.cut(True)
            assert self.log.roll_if_due(WALL_MS) is None


PowerCutMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestLogUnderPowerCuts = PowerCutMachine.TestCase
