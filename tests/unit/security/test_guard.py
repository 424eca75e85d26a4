"""A37, A39: a guard asks for what the tables say, and a door without one asks nobody."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from broker_world import World
from raw_client import encode_request, produce_request

from headrace.broker.runtime import SystemRuntime
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import ANONYMOUS, Principal, broker
from headrace.kafka.handlers import k10_find_coordinator, k22_init_producer_id, k32_describe_configs
from headrace.log.memory_fs import MemoryFileSystem
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.security.authorizer import OPEN, Verdict
from headrace.security.guard import Guard
from headrace.security.places import Lookups
from headrace.security.rights import (
    CLUSTER,
    GROUP,
    TOPIC,
    Operation,
    Resource,
    create,
    either,
    needs,
    read,
    write,
)
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import decode, encode
from headrace.wire.framing import RequestHeader, decode_response_header
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.heartbeat import HeartbeatRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest

Asked = tuple[str, str, str]
TOPIC_ID = bytes(range(16))
LOOKUPS = Lookups(
    lambda topic_id: "known" if topic_id == TOPIC_ID else None,
    lambda queue: (queue, f"{queue}-2"),
    lambda webhook: f"queue-of-{webhook}",
    lambda task: None,
)


class Ledger:
    """Writes down what it is asked, and denies what it is told to."""

    allows_everything = False

    def __init__(self, denies: Callable[[Asked], bool] = lambda asked: False) -> None:
        self.asked: list[Asked] = []
        self.denies = denies

    def decide(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str
    ) -> Verdict:
        asked = (operation.name, resource.name, name)
        self.asked.append(asked)
        return Verdict(not self.denies(asked))


def test_names_come_from_where_the_table_says() -> None:
    ledger = Ledger()
    guard = Guard(ledger, LOOKUPS)
    request = DescribeConfigsRequest([DescribeConfigsResource(2, "t"), DescribeConfigsResource(4, "1")])
    assert guard.kafka(k32_describe_configs.RIGHTS, request, ANONYMOUS, "h") is None
    assert ledger.asked == [("DESCRIBE_CONFIGS", "TOPIC", "t"), ("DESCRIBE_CONFIGS", "CLUSTER", "")]


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (0, ("DESCRIBE", "GROUP", "g:x:0")),
        (1, ("DESCRIBE", "TRANSACTIONAL_ID", "g:x:0")),
        (2, ("DESCRIBE", "GROUP", "g")),
    ],
)
def test_a_field_beside_the_name_says_what_kind_of_resource_it_is(kind: int, asked: Asked) -> None:
    ledger = Ledger()
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["g:x:0"])
    Guard(ledger, LOOKUPS).kafka(k10_find_coordinator.RIGHTS, request, ANONYMOUS, "h")
    assert ledger.asked == [asked]


def test_a_producer_without_an_id_needs_the_clusters_right() -> None:
    ledger = Ledger()
    guard = Guard(ledger, LOOKUPS)
    guard.kafka(k22_init_producer_id.RIGHTS, InitProducerIdRequest(None, 1), ANONYMOUS, "h")
    guard.kafka(k22_init_producer_id.RIGHTS, InitProducerIdRequest("x", 1), ANONYMOUS, "h")
    assert ledger.asked == [("IDEMPOTENT_WRITE", "CLUSTER", ""), ("WRITE", "TRANSACTIONAL_ID", "x")]


def test_either_right_is_enough_and_the_last_is_named() -> None:
    rights = needs(either(create(CLUSTER), create(TOPIC, "topics[].name")))
    request = CreateTopicsRequest([CreatableTopic("a"), CreatableTopic("b")])
    only_topics = Ledger(lambda asked: asked[1] == "CLUSTER")
    assert Guard(only_topics, LOOKUPS).kafka(rights, request, ANONYMOUS, "h") is None
    missing = Guard(Ledger(lambda asked: asked[2] != "a"), LOOKUPS).kafka(rights, request, ANONYMOUS, "h")
    assert missing is not None and missing.words == "needs Create on topic b"
    assert missing.kind is ErrorKind.TOPIC_AUTHORIZATION_FAILED


def test_a49_a_broker_that_has_proved_itself_is_not_asked() -> None:
    ledger = Ledger(lambda asked: True)
    rights = needs(read(GROUP, "group_id"))
    assert Guard(ledger, LOOKUPS).kafka(rights, HeartbeatRequest("g"), broker(1, 2), "h") is None
    assert not ledger.asked


def test_a_queue_is_a_group_over_its_topics() -> None:
    ledger = Ledger(lambda asked: asked[2] == "webhooks-2")
    guard = Guard(ledger, LOOKUPS)
    rights = needs(
        read(GROUP, "queue of {webhook}"), read(TOPIC, "topics of {queue}"), write(TOPIC, "body.to[]")
    )
    guard.check_http(rights, {"webhook": "w", "queue": "q"}, {"to": ["a", "b"]}, ANONYMOUS, "h")
    assert [name for _, _, name in ledger.asked] == ["queue-of-w", "q", "q-2", "a", "b"]
    with pytest.raises(HeadraceError, match="needs Read on topic webhooks-2") as refused:
        guard.check_http(rights, {"webhook": "w", "queue": "webhooks"}, {}, ANONYMOUS, "h")
    assert refused.value.kind is ErrorKind.ACCESS_DENIED


# -- through the doors -------------------------------------------------------------------------------------------------


def test_with_nothing_configured_nobody_is_asked_and_no_door_has_a_guard() -> None:
    """Mode open costs nothing: there is no guard that could be asked."""
    assert OPEN.allows_everything
    node = Node(
        Settings(kafka_port=0, http_port=0, ephemeral=True, data_dir="/open"),
        SystemRuntime(MemoryFileSystem()),
    )
    assert node._guard is None


async def kafka(world: World, key: int, version: int, request: object) -> Any:
    """The answer; None when the connection was closed instead."""
    connection, sink = world.connect()
    body = request if isinstance(request, bytes) else encode(request, version)
    frame = encode_request(RequestHeader(key, version, 1, "test"), body)
    buffer = connection.get_buffer(-1)
    buffer[: len(frame)] = frame
    connection.buffer_updated(len(frame))
    async with asyncio.timeout(60):
        while not sink.answers and not sink.aborted:  # noqa: ASYNC110 (a connection that ends tells no event)
            await asyncio.sleep(0)
    if not sink.answers:
        return None
    (size,) = struct.unpack(">i", sink.last[:4])
    answer = sink.last[4 : 4 + size]
    _, position = decode_response_header(answer, key, version)
    return decode(API[key].response, version, answer, position)


async def http(port: int, method: str, path: str, body: bytes, *headers: str) -> tuple[int, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [
        f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{port}", f"content-length: {len(body)}", "connection: close",
        *headers,
    ]  # fmt: skip
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    answer = await reader.read()
    writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), msgspec.json.decode(rest) if rest else None


def test_a39_a_door_with_a_guard_carries_out_nothing_that_is_denied() -> None:
    async def scenario() -> None:
        ledger = Ledger()
        world = await World().start(ledger)
        try:
            assert ("CREATE", "CLUSTER", "") in ledger.asked
            ledger.denies = lambda asked: asked[2] != "fuzz-plain" and asked[1] != "CLUSTER"
            produced = produce_request("fuzz-plain", b"", 0)
            ledger.asked.clear()
            await kafka(world, ApiKey.PRODUCE, 9, produced)
            assert ledger.asked == [("WRITE", "TOPIC", "fuzz-plain")]
            assert await kafka(world, ApiKey.PRODUCE, 9, produce_request("other", b"", 0)) is None
            beat = await kafka(world, ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m"))
            assert beat.error_code == ErrorKind.GROUP_AUTHORIZATION_FAILED.kafka_code
            ledger.denies = lambda asked: True
            made = CreateTopicsRequest([CreatableTopic("new", 1, 1)])
            assert await kafka(world, ApiKey.CREATE_TOPICS, 7, made) is None
            assert world.node.metadata.image.topic("new") is None
            assert (await kafka(world, ApiKey.API_VERSIONS, 3, API[18].request("a", "1"))).error_code == 0

            port = world.node.http_port
            status, body = await http(port, "POST", "/queues/q/messages", b"x", "content-type: text/plain")
            assert (status, body["code"]) == (403, "ACCESS_DENIED")
            assert "needs Write on topic q" in body["detail"]
            assert world.node.services.queues.find_spec("q") is None
            target = ("x-amz-target: AmazonSQS.CreateQueue", "content-type: application/x-amz-json-1.0")
            status, body = await http(port, "POST", "/", b'{"QueueName": "q"}', *target)
            assert status == 403 and "AccessDenied" in body["__type"]
            assert (await http(port, "GET", "/api/v1/queues", b""))[0] == 200, (
                "a list leaves out, it does not refuse"
            )
        finally:
            await world.node.stop()

    asyncio.run(scenario())
