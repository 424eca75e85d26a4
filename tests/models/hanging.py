"""A transaction that nobody will end, for tests of those who can."""

from __future__ import annotations

import struct
import time

from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess

PRODUCER = 987_654


def hang(
    broker: BrokerProcess,
    topic: str,
    offset: int,
    producer_id: int = PRODUCER,
    epoch: int = 3,
    age_ms: int = 0,
) -> None:
    """A transaction that no coordinator knows, as an older broker or a lost disk leaves it: its batch lies in the log."""
    broker.kill()
    batch = bytearray(
        build_batch(
            [Record(None, b"hanging")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
            wall_ms=int(time.time() * 1000) - age_ms,
        )
    )
    struct.pack_into(">q", batch, 0, offset)
    struct.pack_into(">i", batch, 12, 0)
    (segment,) = broker.data_dir.rglob(f"*{topic}*/**/*.log")
    with segment.open("ab") as file:
        file.write(batch)
    broker.start()
