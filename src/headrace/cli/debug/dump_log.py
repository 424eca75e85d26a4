"""Command: `headrace debug dump-log`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import click
import msgspec

from headrace.broker.os_files import OsFileSystem
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, printable
from headrace.core.moments import rfc3339
from headrace.core.ports import File
from headrace.log.names import LOG, offset_of
from headrace.log.scanning import BadBatch, Scanned, find_valid_batch, scan_file
from headrace.records.batch import CorruptBatch
from headrace.records.compression import Codec
from headrace.records.read import iter_records
from headrace.records.shown import shown_bytes, shown_headers

MAX_SHOWN_BYTES = 128 << 20


class RecordInfo(msgspec.Struct):
    """As REST shows records."""

    offset: int
    timestamp: str | None
    timestamp_ms: int
    key: Any
    value: Any
    headers: dict[str, Any]


class DumpRow(Row):
    """A batch; or, when `damage` is set, what is wrong from `position` on."""

    SCHEMA: ClassVar[str] = "headrace.debug.dump-log/v2"
    NAME: ClassVar[str] = "position"
    file: str
    position: int
    size: int
    base_offset: int
    last_offset: int
    records: int
    leader_epoch: int
    codec: str
    timestamp_ms: int | None
    """Of the newest record."""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    damage: str | None = None
    contents: list[RecordInfo] | None = None


@leaf(DumpRow, Shape.STREAM)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--records", "with_records", is_flag=True, help="The records of each batch too.")
def command(run: Invocation, paths: tuple[str, ...], with_records: bool) -> Exit:
    """Show the record batches of segment files, and where they are damaged.

    PATHS are .log files, or directories of partitions. Nothing is changed, and the broker may be running; the last
    batch can then look cut short because it is being written. Ends with 1 when something is damaged.
    """
    damaged = False
    for path in _segments(paths):
        if run.output.for_people:
            sys.stdout.buffer.write(f"{path}: {path.stat().st_size} bytes\n".encode())
        for row in _rows(path, with_records):
            damaged = damaged or row.damage is not None
            run.output.line(lambda row=row: row, lambda row=row: _text(row))  # type: ignore[misc]
    return Exit.FAILED if damaged else Exit.OK


def _segments(paths: tuple[str, ...]) -> list[Path]:
    found = []
    for path in map(Path, paths):
        listed = sorted(path.rglob(f"*{LOG}")) if path.is_dir() else [path]
        if not listed:
            raise Failure(Exit.NOT_FOUND, f"there is no {LOG} file below {path}")
        found += listed
    return found


def _rows(path: Path, with_records: bool) -> Iterator[DumpRow]:
    real = os.path.realpath(path)
    file = OsFileSystem(os.path.dirname(real)).open(real, writable=False)
    try:
        expected = offset_of(path.name, LOG)
        if expected is None:
            raise Failure(
                Exit.USAGE, f"{path} is not a segment", "a segment is called 00000000000000000042.log"
            )
        yield from _scan(file, str(path), expected, with_records)
    finally:
        file.close()


def _scan(file: File, name: str, expected: int, with_records: bool) -> Iterator[DumpRow]:
    """Batch by batch; after damage, on with the next whole batch if there is one."""
    position, end = 0, file.size
    while position < end:
        try:
            for found in scan_file(file, position, end, expected, gaps=True):
                expected = found.header.next_offset
                yield _row(name, found, with_records)
            return
        except BadBatch as bad:
            following = find_valid_batch(file, bad.position + 1, end, expected)
            upto = end if following is None else following
            yield _damage(name, bad, upto, torn=following is None)
            position = upto


def _row(name: str, found: Scanned, with_records: bool) -> DumpRow:
    header = found.header
    row = DumpRow(
        file=name,
        position=found.position,
        size=header.size,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        records=header.record_count,
        leader_epoch=header.leader_epoch,
        codec=Codec(header.codec).name.lower(),
        timestamp_ms=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
    )
    if with_records:
        try:
            row.contents = [
                RecordInfo(
                    record.offset,
                    rfc3339(record.timestamp),
                    record.timestamp,
                    shown_bytes(record.key),
                    shown_bytes(record.value),
                    shown_headers(record.headers),
                )
                for record in iter_records(found.data, found.at, max_bytes=MAX_SHOWN_BYTES)
            ]
        except CorruptBatch as problem:
            row.damage = f"the CRC is right, but the records can't be read: {problem}"
    return row


def _damage(name: str, bad: BadBatch, upto: int, *, torn: bool) -> DumpRow:
    kind = "a torn tail, or a write under way" if torn and bad.short else "damage"
    after = "nothing whole comes after it" if torn else f"the next whole batch is at {upto}"
    return DumpRow(
        file=name,
        position=bad.position,
        size=upto - bad.position,
        base_offset=bad.offset,
        last_offset=-1,
        records=0,
        leader_epoch=-1,
        codec="",
        timestamp_ms=None,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        transactional=False,
        control=False,
        damage=f"{kind}: {bad.detail}; {upto - bad.position} bytes, {after}",
    )


def _time(timestamp_ms: int | None) -> str:
    return str(timestamp_ms) if timestamp_ms is None else rfc3339(timestamp_ms) or str(timestamp_ms)


def _plain(shown: Any) -> str:
    return str(shown["base64"] if isinstance(shown, dict) else shown)


def _text(row: DumpRow) -> bytes:
    if row.damage is not None and row.contents is None and row.last_offset < 0:
        return f"@{row.position:<12} DAMAGED after offset {row.base_offset - 1}: {row.damage}\n".encode()
    flags = " txn" * row.transactional + " control" * row.control
    producer = (
        f" producer {row.producer_id}/{row.producer_epoch} seq {row.base_sequence}"
        if row.producer_id >= 0
        else ""
    )
    lines = [
        f"@{row.position:<12} offsets {row.base_offset}..{row.last_offset}  {row.records} records  {row.size} bytes  "
        f"epoch {row.leader_epoch}  {row.codec}  {_time(row.timestamp_ms)}{producer}{flags}"
    ]
    if row.damage is not None:
        lines.append(f"    DAMAGED: {row.damage}")
    lines += [
        printable(
            f"    {record.offset}  {_time(record.timestamp_ms)}  {_plain(record.key)} = {_plain(record.value)}  "
            f"{' '.join(f'{name}:{_plain(value)}' for name, value in record.headers.items())}".rstrip()
        )
        for record in row.contents or ()
    ]
    return ("\n".join(lines) + "\n").encode()
