"""Codec: small sealed files: where recovery starts, whose log this is, and that the last stop was clean (S13).

A sealed file is one line of text and a payload:

    headrace <kind> v<version> length=<payload bytes> crc=<crc32 of kind, version and payload, hex>\\n
    <payload>

Invariant: `unseal` returns exactly what `seal` was given, or raises BadSeal; damage to any byte is noticed.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any, NamedTuple

from headrace.core.ports import FileSystem

_LINE = re.compile(rb"headrace ([a-z-]++) v([0-9]++) length=([0-9]++) crc=([0-9a-f]{8})")

_STATE_VERSION = 1
_PARTITION_VERSION = 1
_MARKER_VERSION = 1
CLEAN_MARKER_FILE = "clean-shutdown"


class DamagedFile(ValueError):
    """A small file is not what was written."""


class LogState(NamedTuple):
    """What a log must remember besides its batches. Everything here may be old, but never ahead of the disk."""

    recovery_point: int = 0
    """Every batch below was synced; recovery looks only beyond (S6, S25)."""
    log_start: int = 0
    high_watermark: int = 0
    """R20: where a replica starts from after a restart. A hint for replication, never used to truncate."""
    compacted_to: int = 0
    """Compaction has seen everything below."""
    sparse: int = 0
    """1 once compaction, here or on the leader, may have left offsets out."""
    restarting: int = 0
    """1 while the log is being emptied to begin anew at log_start (R26): whatever segments there are, are to go."""
    clock_ms: int = 0
    """The latest wall clock that retention came to believe (S23)."""
    serial: int = 0
    """Of two states the one with the higher number counts."""
    epochs_kept: int = 1
    """0 while the log has had one epoch, and no file of them: its batches tell (decision 0045)."""


_ALWAYS = tuple(name for name in LogState._fields if name != "epochs_kept")
"""What every release has written."""


class PartitionIdentity(NamedTuple):
    topic_id: bytes
    created_ms: int


class CleanMarker(NamedTuple):
    broker_epoch: int


def seal(kind: str, version: int, payload: bytes) -> bytes:
    crc = _crc(kind, version, payload)
    return f"headrace {kind} v{version} length={len(payload)} crc={crc:08x}\n".encode() + payload


def unseal(kind: str, version: int, data: bytes) -> bytes:
    line, newline, payload = data.partition(b"\n")
    match = _LINE.fullmatch(line)
    if not newline or match is None:
        raise DamagedFile(f"not a sealed {kind} file")
    found_kind, found_version = match[1].decode(), int(match[2])
    if (found_kind, found_version) != (kind, version):
        raise DamagedFile(f"a {found_kind} v{found_version} file where {kind} v{version} was expected")
    if int(match[3]) != len(payload):
        raise DamagedFile(f"{len(payload)} bytes of {kind} where {int(match[3])} were written")
    if int(match[4], 16) != _crc(kind, version, payload):
        raise DamagedFile(f"the checksum of {kind} does not match")
    return payload


def _crc(kind: str, version: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(f"{kind} {version}".encode()))


def encode_state(state: LogState) -> bytes:
    return seal("log-state", _STATE_VERSION, _json(state._asdict()))


def decode_state(data: bytes) -> LogState:
    fields = _object("log-state", _STATE_VERSION, data, _ALWAYS)
    return LogState(**{name: _integer(fields, name) for name in LogState._fields if name in fields})


def encode_identity(identity: PartitionIdentity) -> bytes:
    fields = {"topic_id": identity.topic_id.hex(), "created_ms": identity.created_ms}
    return seal("partition", _PARTITION_VERSION, _json(fields))


def decode_identity(data: bytes) -> PartitionIdentity:
    fields = _object("partition", _PARTITION_VERSION, data, PartitionIdentity._fields)
    try:
        topic_id = bytes.fromhex(fields["topic_id"])
    except (TypeError, ValueError):
        raise DamagedFile("the topic id is not hexadecimal") from None
    return PartitionIdentity(topic_id, _integer(fields, "created_ms"))


def write_clean_marker(fs: FileSystem, directory: str, broker_epoch: int) -> None:
    """R33: the last thing a clean stop does, after every log was flushed and closed."""
    payload = _json({"broker_epoch": broker_epoch})
    fs.write_file(f"{directory}/{CLEAN_MARKER_FILE}", seal("clean-shutdown", _MARKER_VERSION, payload))


def take_clean_marker(fs: FileSystem, directory: str) -> CleanMarker | None:
    """R33, S18: read the marker and remove it for good, before any log is opened for writing.

    An unreadable marker counts as none: the careful answer.
    """
    path = f"{directory}/{CLEAN_MARKER_FILE}"
    if not fs.exists(path):
        return None
    try:
        fields = _object("clean-shutdown", _MARKER_VERSION, fs.read_file(path), ("broker_epoch",))
        marker = CleanMarker(_integer(fields, "broker_epoch"))
    except DamagedFile:
        marker = None
    fs.remove(path)
    fs.sync_dir(directory)
    return marker


def _json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True).encode() + b"\n"


def _object(kind: str, version: int, data: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        fields = json.loads(unseal(kind, version, data))
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise DamagedFile(f"{kind} is not JSON") from None
    if not isinstance(fields, dict) or not set(names) <= set(fields):
        raise DamagedFile(f"{kind} lacks fields")
    return fields


def _integer(fields: dict[str, Any], name: str) -> int:
    value = fields[name]
    if type(value) is not int:
        raise DamagedFile(f"{name} is not a whole number")
    return value
