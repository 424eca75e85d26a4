"""Codec: the producer table as a file, named by the offset it stands at (R40).

A snapshot only saves replaying: one that is missing or damaged is passed over for an older one, and at last for the
whole log. Which snapshots exist is the business of PartitionLog: none beyond the end survives a truncation.
"""

from __future__ import annotations

import struct

from headrace.core.ports import FileSystem
from headrace.log.checkpoints import DamagedFile, seal, unseal
from headrace.log.names import SNAPSHOT, offset_of, snapshot_path
from headrace.log.producers import REMEMBERED_BATCHES, ProducedBatch, ProducerEntry, ProducerTable

_VERSION = 1
_KIND = "producers"
_PRODUCER = struct.Struct(">qhiqqB")
_BATCH = struct.Struct(">iiqqq")


def encode_snapshot(offset: int, table: ProducerTable) -> bytes:
    parts = [struct.pack(">qI", offset, len(table))]
    for producer_id, producer in table:
        parts.append(
            _PRODUCER.pack(
                producer_id,
                producer.epoch,
                producer.coordinator_epoch,
                producer.transaction_start,
                producer.last_seen_ms,
                len(producer.batches),
            )
        )
        parts.extend(_BATCH.pack(*batch) for batch in producer.batches)
    return seal(_KIND, _VERSION, b"".join(parts))


def decode_snapshot(data: bytes, offset: int) -> ProducerTable:
    payload = unseal(_KIND, _VERSION, data)
    table = ProducerTable()
    try:
        found_offset, count = struct.unpack_from(">qI", payload)
        if found_offset != offset:
            raise DamagedFile(f"a snapshot of offset {found_offset} under the name of {offset}")
        position = 12
        for _ in range(count):
            producer_id, epoch, coordinator_epoch, start, seen_ms, batches = _PRODUCER.unpack_from(
                payload, position
            )
            position += _PRODUCER.size
            producer = ProducerEntry(epoch)
            producer.coordinator_epoch = coordinator_epoch
            producer.transaction_start = start
            producer.last_seen_ms = seen_ms
            for _ in range(min(batches, REMEMBERED_BATCHES)):
                producer.batches.append(ProducedBatch(*_BATCH.unpack_from(payload, position)))
                position += _BATCH.size
            table.insert(producer_id, producer)
    except struct.error:
        raise DamagedFile("a snapshot is cut short") from None
    table.opened()
    return table


def snapshot_offsets(fs: FileSystem, directory: str) -> list[int]:
    names = fs.list_dir(directory)
    return [offset for name in names if (offset := offset_of(name, SNAPSHOT)) is not None]


def load_newest(
    fs: FileSystem, directory: str, not_above: int, not_below: int, unreadable: list[str]
) -> tuple[int, ProducerTable] | None:
    """The newest usable snapshot in [not_below, not_above]; names of unusable ones are added to `unreadable`."""
    for offset in reversed(snapshot_offsets(fs, directory)):
        if not not_below <= offset <= not_above:
            continue
        path = snapshot_path(directory, offset)
        try:
            return offset, decode_snapshot(fs.read_file(path), offset)
        except DamagedFile:
            unreadable.append(path.rpartition("/")[2])
    return None


def write_snapshot(fs: FileSystem, directory: str, offset: int, table: ProducerTable) -> None:
    """Not synced: a torn snapshot fails its checksum, and replaying makes up for it."""
    replace_cache(fs, snapshot_path(directory, offset), [encode_snapshot(offset, table)])


def drop_snapshot(fs: FileSystem, directory: str, offset: int) -> None:
    path = snapshot_path(directory, offset)
    if fs.exists(path):
        fs.remove(path)


def ensure_snapshot(
    fs: FileSystem, directory: str, first_base: int, end_offset: int, table: ProducerTable
) -> None:
    """Producers of segments that go are remembered only by a snapshot among those that stay; see that there is one."""
    if len(table) and not any(
        first_base <= offset <= end_offset for offset in snapshot_offsets(fs, directory)
    ):
        write_snapshot(fs, directory, end_offset, table)


def replace_cache(fs: FileSystem, path: str, parts: list[bytes]) -> None:
    """Write a file that may be lost but is never believed unless its checksum matches."""
    if fs.exists(path):
        fs.remove(path)
    file = fs.open(path, create=True)
    try:
        file.append(parts)
    finally:
        file.close()
