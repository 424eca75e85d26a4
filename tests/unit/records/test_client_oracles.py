"""Batches of real clients read by us, ours read by real clients: aiokafka and kafka-python, all five codecs."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records

from headrace.records.batch import BatchHeader, crc_matches, read_header
from headrace.records.build import Record, build_batch
from headrace.records.read import read_records
from headrace.records.validate import validate_produced

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # kafka-python loads its schemas through a deprecated door
    from kafka.record import default_records as kafka_python_records

CLIENTS = {"aiokafka": aiokafka_records, "kafka-python": kafka_python_records}

RECORDS = [
    Record(
        None if i % 4 == 0 else b"key-%d" % i,
        None if i % 7 == 3 else b"value-%d " % i * (i % 50),
        tuple((f"header-{j}", None if j == 1 else b"x" * j) for j in range(i % 4)),
        1_700_000_000_000 + (i * 37) % 1000 - 500,
        i,
    )
    for i in range(500)
]


def plain(records: list[Record]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("codec", range(5))
def test_we_read_what_clients_write(client: str, codec: int) -> None:
    builder = CLIENTS[client].DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=True,
        producer_id=123456, producer_epoch=3, base_sequence=17, batch_size=1 << 24,
    )  # fmt: skip
    for record in RECORDS:
        builder.append(
            record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    data = bytes(builder.build())
    header = validate_produced(data, produce_version=9, max_message_bytes=1 << 24)
    assert isinstance(header, BatchHeader)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (123456, 3, 17)
    assert header.is_transactional and header.codec == codec
    assert header.max_timestamp == max(record.timestamp for record in RECORDS)
    assert plain(read_records(data, max_bytes=1 << 24)) == plain(RECORDS)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("codec", range(5))
def test_clients_read_what_we_write(client: str, codec: int) -> None:
    data = build_batch(
        RECORDS, wall_ms=0, codec=codec, producer_id=9, producer_epoch=1, base_sequence=4, transactional=True
    )
    assert crc_matches(data, 0, read_header(data))
    reader = CLIENTS[client].DefaultRecordBatch(data)
    assert reader.validate_crc()
    assert reader.is_transactional
    seen = [(r.offset, r.timestamp, r.key, r.value, tuple(tuple(h) for h in r.headers)) for r in reader]
    assert seen == plain(RECORDS)
