"""Kernel: the values and errors that cross the edge of the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.core.ports import File
from headrace.log.checkpoints import LogState


class RollReason(Enum):
    SIZE = "size"
    TIME = "time"
    BUSY = "busy"
    INDEX_FULL = "index full"
    OFFSET_RANGE = "offset range"
    RETENTION = "retention"
    REQUESTED = "requested"


class StartReason(Enum):
    """Why the first offset of a log moved up."""

    RETENTION = "retention"
    DELETE_RECORDS = "delete records"
    LEADER_START = "leader start"
    RESTART = "restart at leader's start"


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time: int
    """The broker's time when the topic stamps it, else -1."""


class Accept(NamedTuple):
    """The producer's batch continues its sequence."""

    is_known: bool = True
    """False: as far as this log can tell, which does not know the producer, and the batch is not its first."""


class Duplicate(NamedTuple):
    """R38: the batch is in the log already, here."""

    base_offset: int
    last_offset: int
    timestamp: int


ACCEPT = Accept()
UNTOLD = Accept(is_known=False)


class Flush(NamedTuple):
    """What a driver has to sync, in this order, before `flush_done`."""

    files: tuple[File, ...]
    end_offset: int
    generation: int


class PendingFile(NamedTuple):
    path: str
    data: bytes


class Checkpoint(NamedTuple):
    """Small files a driver has to write with FileSystem.write_file, in this order, before `checkpoint_done`."""

    files: tuple[PendingFile, ...]
    state: LogState


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class LogCorrupt(Exception):
    """Bytes that should be there are damaged or gone. The caller takes the log offline; nothing was deleted (S12)."""

    def __init__(self, path: str, position: int, offset: int, detail: str) -> None:
        super().__init__(f"{path} at byte {position} (offset {offset}): {detail}")
        self.path = path
        self.position = position
        self.offset = offset
        self.detail = detail


class WrongTopic(Exception):
    """R34: the directory belongs to another topic of the same name."""

    def __init__(self, directory: str, found: bytes, wanted: bytes) -> None:
        super().__init__(f"{directory} belongs to topic {found.hex()}, not {wanted.hex()}")
        self.found = found
        self.wanted = wanted


@dataclass(slots=True)
class LoadReport:
    """What opening a log found and did, for the node to print."""

    segments: int = 0
    scanned_bytes: int = 0
    """Bytes read with CRC checks because they lie beyond the recovery point or their index was unusable."""
    truncated_bytes: int = 0
    """A torn tail that was never acknowledged, cut off (S3)."""
    quarantined: list[str] = field(default_factory=list)
    """Where bytes went that were cut off but may matter."""
    rebuilt: list[str] = field(default_factory=list)
    """Caches and small files that were missing or unreadable and were made again."""
    notes: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.truncated_bytes or self.quarantined or self.rebuilt)
