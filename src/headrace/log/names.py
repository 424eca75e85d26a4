"""Codec: the names of the files in a partition's directory.

    00000000000000000042.log        batches from offset 42 on, Kafka's v2 format, nothing else
    00000000000000000042.index      a cache of where things are in that segment (see index.py)
    00000000000000000042.snapshot   the producer table as it was before offset 42 (see producers.py)
    state, epochs, partition        small sealed files (see checkpoints.py); state.urgent: see state_files.py
    *.deleted                       waits for purge_deleted (S20)
    *.cleaned, *.swap               compaction under way (S21)
    quarantine/                     bytes that recovery cut off; never removed by us (S12)

Twenty digits, so that names sort like offsets.
"""

from __future__ import annotations

from headrace.core.units import is_digits

LOG = ".log"
INDEX = ".index"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

STATE_FILE = "state"
URGENT_STATE_FILE = "state.urgent"
EPOCHS_FILE = "epochs"
PARTITION_FILE = "partition"
QUARANTINE = "quarantine"

_DIGITS = 20


def log_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}{LOG}"


def index_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{base_offset:020d}{INDEX}"


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SNAPSHOT}"


def offset_of(name: str, suffix: str) -> int | None:
    """42 for `00000000000000000042<suffix>`, None for any other name."""
    stem = name[: -len(suffix)]
    if not name.endswith(suffix) or len(stem) != _DIGITS or not is_digits(stem):
        return None
    return int(stem)
