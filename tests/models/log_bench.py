"""What the tests of the log share: batches, an open log, and a disk whose power can be cut at any step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.core.plan import Rejected
from headrace.core.ports import Buffer, Descriptor, File, FileSystem
from headrace.log.config import LogConfig
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import AppendResult, LoadReport
from headrace.records.batch import BatchHeader, read_header, scan
from headrace.records.build import Record, build_batch, build_control_batch
from headrace.records.read import read_records

DIRECTORY = "/data/orders-0"
TOPIC_ID = bytes(range(16))
WALL_MS = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=4096, index_interval_bytes=128)


def data_batch(
    values: Sequence[bytes | None] = (b"v",),
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | None = None,
    wall_ms: int = WALL_MS,
    **fields: object,
) -> bytearray:
    records = [
        Record(
            keys[i] if keys is not None else b"k",
            value,
            timestamp=timestamps[i] if timestamps is not None else wall_ms,
        )
        for i, value in enumerate(values)
    ]
    return bytearray(build_batch(records, wall_ms=wall_ms, **fields))  # type: ignore[arg-type]


def produced(
    pid: int, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
) -> bytearray:
    return data_batch(
        [b"p"] * count,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(pid: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    return bytearray(build_control_batch(commit, pid, epoch, coordinator_epoch, WALL_MS))


def open_log(
    fs: FileSystem, config: LogConfig = SMALL, *, wall_ms: int = WALL_MS, **options: bool
) -> tuple[PartitionLog, LoadReport]:
    return PartitionLog.open(fs, DIRECTORY, config, topic_id=TOPIC_ID, wall_ms=wall_ms, **options)  # type: ignore[arg-type]


def fresh_log(config: LogConfig = SMALL, fs: FileSystem | None = None) -> PartitionLog:
    log, _ = open_log(fs if fs is not None else MemoryFileSystem(), config)
    log.start_epoch(0)
    return log


def put(
    log: PartitionLog, batch: bytearray, *, epoch: int | None = None, wall_ms: int = WALL_MS
) -> AppendResult:
    result = log.append(batch, read_header(batch), log.epochs.latest if epoch is None else epoch, wall_ms)
    assert isinstance(result, AppendResult), result
    return result


def fill(log: PartitionLog, count: int, *, size: int = 100, wall_ms: int = WALL_MS) -> None:
    """`count` batches of two records each."""
    for _ in range(count):
        put(log, data_batch([b"x" * size, b"y"]), wall_ms=wall_ms)


def headers(data: Buffer) -> list[BatchHeader]:
    return [header for _, header in scan(data)]


def read_all(log: PartitionLog, max_bytes: int = 1000, upto: int | None = None) -> bytes:
    """Everything a consumer would see, fetch by fetch."""
    offset, out = log.start_offset, bytearray()
    end = log.end_offset if upto is None else upto
    while offset < end:
        data = log.read(offset, max_bytes, end)
        assert not isinstance(data, Rejected), data
        if not data:
            break
        out += data
        offset = headers(data)[-1].next_offset
    return bytes(out)


def records_of(data: Buffer) -> list[Record]:
    """Data records of all batches, markers left out."""
    found: list[Record] = []
    for at, header in scan(data):
        if not header.is_control:
            found += read_records(data, at, max_bytes=1 << 20)
    return found


def open_transactions(log: PartitionLog) -> dict[int, int]:
    """Producer id -> first offset."""
    return {pid: p.transaction_start for pid, p in log.producers if p.transaction_start >= 0}


def derived(log: PartitionLog) -> tuple[object, ...]:
    """All that follows from the batches of a log, in a form that can be compared (ages left out)."""
    producers = {
        pid: (p.epoch, list(p.batches), p.coordinator_epoch, p.transaction_start) for pid, p in log.producers
    }
    return (
        producers,
        open_transactions(log),
        log.epochs.entries,
        log.aborted_transactions(0, log.end_offset),
    )


def replayed(fs: FileSystem, config: LogConfig) -> PartitionLog:
    """The same batches and epochs, opened with nothing else to go by."""
    bare = MemoryFileSystem()
    bare.make_dirs(DIRECTORY)
    for name in fs.list_dir(DIRECTORY):
        if name.endswith(".log") or name in ("partition", "epochs"):
            bare.write_file(f"{DIRECTORY}/{name}", fs.read_file(f"{DIRECTORY}/{name}"))
    return open_log(bare, config)[0]


class PowerCut(BaseException):
    """Not an Exception: nothing may handle it."""


class CrashingFileSystem:
    """Runs on another file system and stops before the `crash_at`-th operation that changes something."""

    def __init__(self, inner: FileSystem, crash_at: int | None = None) -> None:
        self.inner = inner
        self.crash_at = crash_at
        self.steps: list[str] = []

    def _step(self, what: str) -> None:
        if self.crash_at is not None and len(self.steps) >= self.crash_at:
            raise PowerCut(what)
        self.steps.append(what)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        if create and not self.inner.exists(path):
            self._step(f"create {path}")
        return _CrashingFile(self.inner.open(path, create=create, writable=writable), self._step)

    def write_file(self, path: str, data: bytes) -> None:
        self._step(f"write_file {path}")
        self.inner.write_file(path, data)

    def rename(self, source: str, target: str) -> None:
        self._step(f"rename {source}")
        self.inner.rename(source, target)

    def remove(self, path: str) -> None:
        self._step(f"remove {path}")
        self.inner.remove(path)

    def remove_tree(self, path: str) -> None:
        self._step(f"remove_tree {path}")
        self.inner.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self._step(f"sync_dir {path}")
        self.inner.sync_dir(path)

    def make_dirs(self, *paths: str) -> None:
        for path in paths:
            if not self.inner.exists(path):
                self._step(f"make_dirs {path}")
            self.inner.make_dirs(path)

    def read_file(self, path: str) -> bytes:
        return self.inner.read_file(path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def list_dir(self, path: str) -> list[str]:
        return self.inner.list_dir(path)

    def free_bytes(self, path: str) -> int:
        return self.inner.free_bytes(path)

    def capacity_bytes(self, path: str) -> int:
        return self.inner.capacity_bytes(path)


class _CrashingFile:
    def __init__(self, inner: File, step: Callable[[str], None]) -> None:
        self._inner = inner
        self._step = step
        self.path = inner.path

    @property
    def size(self) -> int:
        return self._inner.size

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._step(f"append {self.path}")
        self._inner.append(buffers)

    def truncate(self, size: int) -> None:
        self._step(f"truncate {self.path}")
        self._inner.truncate(size)

    def sync(self) -> None:
        self._step(f"sync {self.path}")
        self._inner.sync()

    def read(self, position: int, length: int) -> bytes:
        return self._inner.read(position, length)

    def descriptor(self) -> Descriptor | None:
        return self._inner.descriptor()

    def close(self) -> None:
        self._inner.close()
