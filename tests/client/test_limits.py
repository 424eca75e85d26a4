"""X8-X14 against a real broker: what hostile or careless clients can't do. Beside each, a healthy client is served."""

from __future__ import annotations

import os
import resource
import select
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from raw_client import RawClient, fetch_request, produce_request

from headrace.core.errors import ErrorKind
from headrace.records.batch import BatchHeader
from headrace.records.build import Record, append_record, assemble, build_batch
from headrace.records.compression import Codec
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.codec import encode

pytestmark = pytest.mark.client

MB = 1_000_000


def rss_mb(broker: BrokerProcess) -> float:
    pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture(scope="module")
def crowd() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running, RawClient(running.kafka_port) as client:
        client.create_topic("t")
        yield running


@pytest.fixture
def healthy(crowd: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(crowd.kafka_port) as client:
        yield client


def is_served(client: RawClient, topic: str = "t") -> bool:
    row = client.produce(topic, build_batch([Record(b"k", b"v")], wall_ms=now_ms()), acks=-1)
    return row.error_code == 0


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1, 101 * 1024 * 1024])
def test_impossible_frame_lengths_end_the_connection(broker: BrokerProcess, size: int) -> None:
    """X8: before anything is read for them."""
    with RawClient(broker.kafka_port) as raw:
        raw.socket.sendall(struct.pack(">i", size) + b"x" * 100)
        assert raw.is_closed_by_broker()


def test_claims_of_huge_frames_cost_what_arrives(crowd: BrokerProcess, healthy: RawClient) -> None:
    """X8: 60 connections claim 99 MB each and send one."""
    before = rss_mb(crowd)
    clients = [RawClient(crowd.kafka_port) for _ in range(60)]
    for client in clients:
        client.socket.sendall(struct.pack(">i", 99 * MB) + b"\x00" * MB)
    assert is_served(healthy)
    assert rss_mb(crowd) - before < 60 * 2.5
    for client in clients:
        client.close()


def test_large_frames_of_many_share_one_budget(crowd: BrokerProcess, healthy: RawClient) -> None:
    """X9: 12 connections push 60 MB each and would hold 720 MB."""
    before = rss_mb(crowd)
    clients = [RawClient(crowd.kafka_port) for _ in range(12)]
    piece = b"\x00" * MB
    for client in clients:
        client.socket.setblocking(False)
    left = [60] * len(clients)
    deadline = time.monotonic() + 8
    for client in clients:
        client.socket.send(struct.pack(">i", 90 * MB))
    while any(left) and time.monotonic() < deadline:
        moved = False
        for number, client in enumerate(clients):
            if left[number]:
                try:
                    client.socket.send(piece)
                    left[number] -= 1
                    moved = True
                except BlockingIOError:
                    pass
        if not moved:
            time.sleep(0.01)
            if time.monotonic() > deadline - 5:
                break
    assert is_served(healthy)
    # 256 MiB of budget, and a buffer that is being copied to a larger one exists twice for a moment.
    assert rss_mb(crowd) - before < 450
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    "key", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_FETCH, ApiKey.CREATE_TOPICS]
)
def test_arrays_that_claim_two_billion_elements(
    crowd: BrokerProcess, healthy: RawClient, key: ApiKey
) -> None:
    """X10: counts are held against the bytes that are there."""
    assert is_served(healthy)  # behind what the test before has left in the sockets
    before = rss_mb(crowd)
    versions = {ApiKey.PRODUCE: 7, ApiKey.FETCH: 11, ApiKey.OFFSET_FETCH: 5, ApiKey.CREATE_TOPICS: 4}
    prefixes = {
        ApiKey.PRODUCE: struct.pack(">hhi", -1, 1, 1000),
        ApiKey.FETCH: struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, -1),
        ApiKey.OFFSET_FETCH: b"\x00\x01g",
    }
    with RawClient(crowd.kafka_port) as raw:
        body = prefixes.get(key, b"") + struct.pack(">i", 2**31 - 1) + b"\x00" * 64
        raw.socket.sendall(raw.frame(key, versions.get(key, 4), body))
        assert raw.is_closed_by_broker()
    assert is_served(healthy) and rss_mb(crowd) - before < 20


def test_clients_that_never_read(crowd: BrokerProcess, healthy: RawClient, topic: str) -> None:
    """X13: 20 clients ask for 1 MB two hundred times each and read nothing: that would be 4 GB."""
    healthy.create_topic(topic)
    batch = build_batch([Record(b"k", os.urandom(900_000))], wall_ms=now_ms())
    for _ in range(2):
        assert healthy.produce(topic, batch, acks=-1).error_code == 0
    before = rss_mb(crowd)
    greedy = [RawClient(crowd.kafka_port) for _ in range(20)]
    for client in greedy:
        frame = client.frame(ApiKey.FETCH, 11, encode(fetch_request([(topic, 0, 0)], max_bytes=MB), 11))
        client.socket.sendall(frame * 200)
    for _ in range(5):
        assert is_served(healthy)
    assert rss_mb(crowd) - before < 20 * 12
    for client in greedy:
        client.close()


def test_a_fetch_that_wants_everything_gets_a_bounded_answer(healthy: RawClient, topic: str) -> None:
    """The request's own limits are the client's; ours is 55 MiB (kafka.md 5.5)."""
    healthy.create_topic(topic)
    batch = build_batch([Record(b"k", os.urandom(1_000_000))], wall_ms=now_ms())
    for _ in range(90):
        assert healthy.produce(topic, bytearray(batch), acks=1).error_code == 0
    assert healthy.produce(topic, bytearray(batch), acks=-1).error_code == 0
    row = healthy.fetch(topic, 0, max_bytes=2**31 - 1)
    assert 10 * MB < len(row.records) <= 56 * 1024 * 1024


def test_a_thousand_connections(crowd: BrokerProcess, healthy: RawClient) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2500:
        pytest.skip("too few descriptors allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2500), hard))
    before = rss_mb(crowd)
    clients = [RawClient(crowd.kafka_port) for _ in range(1000)]
    assert is_served(healthy) and is_served(clients[-1])
    assert rss_mb(crowd) - before < 80
    for client in clients:
        client.close()
    assert is_served(healthy)


def bomb(codec: Codec, size: int = 140 * MB) -> bytearray:
    """A batch of one record with a large value of zeros, in a few hundred kilobytes."""
    fields = bytearray()
    append_record(fields, Record(b"k", b""), 0, 0)
    plain = bytearray(size)
    if codec is Codec.GZIP:
        squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
        body = squeeze.compress(plain) + squeeze.flush()
    elif codec is Codec.ZSTD:
        body = bytes(cramjam.zstd.compress(plain))
    elif codec is Codec.LZ4:
        body = bytes(cramjam.lz4.compress(plain))
    else:
        body = bytes(cramjam.snappy.compress_raw(plain[: 16 * MB]))
    header = BatchHeader(0, 0, -1, 2, 0, codec, 0, now_ms(), now_ms(), -1, -1, -1, 1)
    return assemble(header, body)


@pytest.mark.parametrize(
    "codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name
)
@pytest.mark.parametrize("config", [{"cleanup_policy": "compact"}, {"compression_type": "uncompressed"}])
def test_decompression_bombs(
    crowd: BrokerProcess, healthy: RawClient, topic: str, codec: Codec, config: dict[str, Any]
) -> None:
    """X11: where a batch has to be opened, what it may grow to is capped, for every codec."""
    with RawClient(crowd.kafka_port) as raw:
        raw.create_topic(topic, max_message_bytes="50000000", **config)
        before = rss_mb(crowd)
        batch = bomb(codec)
        row = raw.produce(topic, batch)
        assert row.error_code != 0
        assert rss_mb(crowd) - before < 400
    assert is_served(healthy)


def test_a_batch_of_very_many_small_records_does_not_stop_the_broker(
    crowd: BrokerProcess, healthy: RawClient, topic: str
) -> None:
    """X12: what a batch may cost to open is bounded in time too, and others are served meanwhile."""
    count = 400_000
    many = bytearray()
    for delta in range(count):
        append_record(many, Record(b"", b""), 0, delta)
    header = BatchHeader(0, 0, -1, 2, 0, Codec.ZSTD, count - 1, now_ms(), now_ms(), -1, -1, -1, count)
    with RawClient(crowd.kafka_port) as raw:
        raw.create_topic(topic, cleanup_policy="compact")
        batch = assemble(header, bytes(cramjam.zstd.compress(bytes(many))))
        raw.send(ApiKey.PRODUCE, 9, produce_request(topic, batch))
        served = 0
        while not select.select([raw.socket], [], [], 0)[0]:
            assert is_served(healthy)
            served += 1
        # On the event loop it would hold everybody up from the moment that it is read.
        assert served > 3
        assert raw.answer(ApiKey.PRODUCE, 9).topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
def test_clients_do_not_write_internal_topics(crowd: BrokerProcess, internal: str) -> None:
    """X17, whether the topic exists yet or not."""
    with RawClient(crowd.kafka_port) as raw:
        row = raw.produce(internal, build_batch([Record(b"k", b"v")], wall_ms=now_ms()))
        assert row.error_code == ErrorKind.INVALID_TOPIC_EXCEPTION
