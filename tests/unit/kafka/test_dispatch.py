"""From a frame to its handler: unknown keys and versions, KIP-511, broken frames, failing handlers (X16)."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from broker_world import World
from raw_client import encode_request

from headrace.cluster.membership import PRODUCER_IDS_PER_BLOCK
from headrace.core.errors import ErrorKind
from headrace.kafka import dispatch
from headrace.kafka.dispatch import TABLE, ApiEntry
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import decode, encode, versions
from headrace.wire.framing import RequestHeader, decode_response_header
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse

# kafka.md section 2.
OFFERED = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5),
    14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 3),
    25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 38: (1, 3), 39: (1, 2), 40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1),
    45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0),
    66: (0, 2), 68: (0, 1), 69: (0, 1), 74: (0, 1), 75: (0, 0), 76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2), 88: (0, 0), 89: (0, 0), 90: (0, 1), 91: (0, 0),
    92: (0, 0),
}  # fmt: skip


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A whole broker in memory: whatever stands before a handler stands here too."""
    started = await World().start()
    yield started
    await started.stop()


def frame(key: int, version: int, body: bytes = b"", correlation_id: int = 77) -> bytes:
    if key in API:
        return encode_request(RequestHeader(key, version, correlation_id, "c"), body)
    header = struct.pack(">hhih", key, version, correlation_id, -1)
    return struct.pack(">i", len(header + body)) + header + body


def is_refused(world: World, request: bytes) -> bool:
    """The connection ends and nothing is answered; the next one is fine."""
    connection, sink = world.connect()
    world.feed_to(connection, sink, request)
    refused = sink.aborted and not sink.answers
    connection.connection_lost(None)
    return refused


async def answer(world: World, request: bytes) -> bytes:
    connection, sink = world.connect()
    world.feed_to(connection, sink, request)
    async with asyncio.timeout(120):
        await sink.answered.wait()
    connection.connection_lost(None)
    return sink.last[4:]


async def test_an_unknown_key_ends_the_connection(world: World) -> None:
    for key in (-1, 4, 999, 32767):
        assert is_refused(world, frame(key, 0))


async def test_an_unknown_version_ends_the_connection(world: World) -> None:
    for entry in TABLE.values():
        if entry.key == ApiKey.API_VERSIONS:
            continue
        assert is_refused(world, frame(entry.key, entry.max_version + 1)), entry
        if entry.min_version:
            assert is_refused(world, frame(entry.key, entry.min_version - 1)), entry


async def test_api_versions_of_the_future_is_answered_in_version_0(world: World) -> None:
    """KIP-511, trap 10: error 35, all keys, response header without tags."""
    for version in (5, 99, 32767):
        sent = await answer(world, frame(ApiKey.API_VERSIONS, version))
        correlation_id, position = decode_response_header(sent, ApiKey.API_VERSIONS, 0)
        response = decode(ApiVersionsResponse, 0, sent, position)
        assert correlation_id == 77 and response.error_code == ErrorKind.UNSUPPORTED_VERSION
        rows = {row.api_key: row.max_version for row in response.api_keys}
        assert rows[ApiKey.API_VERSIONS] == TABLE[ApiKey.API_VERSIONS].max_version and len(rows) > 25


async def test_what_is_advertised_is_served(world: World) -> None:
    for version in range(5):
        sent = await answer(
            world, frame(ApiKey.API_VERSIONS, version, encode(ApiVersionsRequest("client", "1.0"), version))
        )
        _, position = decode_response_header(sent, ApiKey.API_VERSIONS, version)
        response = decode(ApiVersionsResponse, version, sent, position)
        assert response.error_code == 0
        for row in response.api_keys:
            entry = TABLE[row.api_key]
            assert row.max_version <= entry.max_version
            # Trap 1: Produce alone is advertised below what it serves.
            assert row.min_version == entry.min_version or row.api_key == ApiKey.PRODUCE


async def test_features_are_told_as_java_clients_of_2022_to_2024_can_hear_them(world: World) -> None:
    """F28: kafka-clients 3.3 to 3.7 ask with v3 and give up the connection when a lowest level is 0 ("Expected minValue >= 1")."""
    for version, off in ((3, 1), (4, 0)):
        sent = await answer(
            world, frame(ApiKey.API_VERSIONS, version, encode(ApiVersionsRequest("client", "1.0"), version))
        )
        _, position = decode_response_header(sent, ApiKey.API_VERSIONS, version)
        response = decode(ApiVersionsResponse, version, sent, position)
        assert len(response.supported_features) == len(response.finalized_features) >= 3
        assert {feature.min_version for feature in response.supported_features} == {off}
        for feature in response.finalized_features:
            assert 1 <= feature.min_version_level <= feature.max_version_level


async def test_f41_the_versions_on_offer(world: World) -> None:
    """Said once, by the handlers; compared here with what we mean to offer (a table of its own in src had four rows wrong)."""
    sent = await answer(world, frame(ApiKey.API_VERSIONS, 0))
    _, position = decode_response_header(sent, ApiKey.API_VERSIONS, 0)
    rows = decode(ApiVersionsResponse, 0, sent, position).api_keys
    assert {row.api_key: (row.min_version, row.max_version) for row in rows} == OFFERED


@pytest.mark.parametrize("entry", TABLE.values(), ids=lambda entry: str(entry.key))
def test_every_handler_declares_versions_that_its_codec_speaks(entry: ApiEntry) -> None:
    for message in (API[entry.key].request, API[entry.key].response):
        known = versions(message)
        assert entry.min_version in known and entry.max_version in known
    assert (entry.handle is None) != (entry.handle_frame is None)


async def test_a_broken_frame_ends_the_connection_with_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """X16."""
    with caplog.at_level(logging.WARNING):
        assert is_refused(world, frame(ApiKey.METADATA, 9, b"\xff\xff\xff\xff\x0f"))
        assert is_refused(world, b"\x00\x00\x00\x01\x00")
    lines = [record.getMessage() for record in caplog.records if "malformed" in record.getMessage()]
    assert len(lines) == 2


async def test_bytes_too_many_are_let_pass(world: World) -> None:
    """librdkafka 2.16 sends three when it asks for all topics (Metadata v9 and up)."""
    sent = await answer(
        world, frame(ApiKey.METADATA, 12, encode(MetadataRequest(None), 12) + b"\x01\x00\x00")
    )
    _, position = decode_response_header(sent, ApiKey.METADATA, 12)
    names = {topic.name for topic in decode(MetadataResponse, 12, sent, position).topics}
    assert "fuzz-plain" in names


async def test_a_handler_that_fails_ends_its_connection_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(call: Any) -> Any:
        raise ZeroDivisionError("a bug")

    def broken_at_once(call: Any) -> Any:
        raise ZeroDivisionError("a bug")

    request = frame(ApiKey.METADATA, 1, encode(MetadataRequest([]), 1))
    for handler in (broken, broken_at_once):
        caplog.clear()
        with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
            patched.setitem(dispatch.TABLE, 3, TABLE[3]._replace(handle=handler))
            connection, sink = world.connect()
            world.feed_to(connection, sink, request)
            for _ in range(5):
                await asyncio.sleep(0)
            assert sink.aborted and not sink.answers and "a bug" in caplog.text
        assert await world.is_healthy()


async def test_f41_producer_ids_come_from_blocks_that_are_reserved_ahead(world: World) -> None:
    """R37: more than one block of them, each once, and the next block is there before the last id is gone."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    found: list[int] = []
    ahead = False
    for _ in range(PRODUCER_IDS_PER_BLOCK + 10):
        sent = await answer(world, frame(ApiKey.INIT_PRODUCER_ID, 4, encode(request, 4)))
        _, position = decode_response_header(sent, ApiKey.INIT_PRODUCER_ID, 4)
        found.append(decode(InitProducerIdResponse, 4, sent, position).producer_id)
        block = world.node.metadata.image.producer_ids
        assert block is not None
        ahead |= found[-1] < PRODUCER_IDS_PER_BLOCK < block.next_producer_id
    assert found == list(range(len(found))) and ahead
