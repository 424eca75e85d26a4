"""Codec: what a follower accepts from its leader (R11)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer
from headrace.records.batch import BatchHeader, CorruptBatch, crc_matches, scan


def check_replicated(
    data: Buffer, expected_offset: int, epoch: int, *, gaps: bool
) -> list[tuple[int, BatchHeader]] | Rejected:
    """(position, header) of every whole batch, all checked before any is written. `gaps`: offsets may jump ahead."""
    batches = []
    try:
        for at, header in scan(data):
            base = header.base_offset
            if not crc_matches(data, at, header):
                return Rejected(ErrorKind.CORRUPT_MESSAGE, f"the batch at {base} fails its CRC")
            if (
                base < expected_offset
                or (base > expected_offset and not gaps)
                or header.last_offset_delta < 0
            ):
                detail = f"base offset {base} where {expected_offset} comes next"
                return Rejected(ErrorKind.CORRUPT_MESSAGE, detail)
            if header.leader_epoch < epoch:
                detail = f"leader epoch {header.leader_epoch} after {epoch}"
                return Rejected(ErrorKind.FENCED_LEADER_EPOCH, detail)
            batches.append((at, header))
            expected_offset, epoch = header.next_offset, header.leader_epoch
    except CorruptBatch as error:
        return Rejected(ErrorKind.CORRUPT_MESSAGE, str(error))
    return batches
