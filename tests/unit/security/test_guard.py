"""A37, A39, A44, A45: a guard asks for what the tables say, part by part, and mode open asks nobody."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from broker_world import World
from raw_client import encode_request, produce_request

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import ANONYMOUS, Principal, broker
from headrace.kafka.dispatch import TABLE
from headrace.kafka.handlers import (
    k10_find_coordinator,
    k19_create_topics,
    k22_init_producer_id,
    k32_describe_configs,
)
from headrace.security.access import TRUSTED, Access
from headrace.security.authorizer import Verdict
from headrace.security.denials import Denials
from headrace.security.guard import Denied, Guard
from headrace.security.places import Lookups
from headrace.security.records import Mode
from headrace.security.rights import GROUP, TOPIC, Operation, Resource, needs, read, write
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import decode, encode
from headrace.wire.framing import RequestHeader, decode_response_header
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.heartbeat import HeartbeatRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.schema import STRUCTS, FieldKind

Asked = tuple[str, str, str]
TOPIC_ID = bytes(range(16))
LOOKUPS = Lookups(
    lambda topic_id: "known" if topic_id == TOPIC_ID else None,
    lambda queue: (queue, f"{queue}-2"),
    lambda webhook: f"queue-of-{webhook}",
    lambda task: None,
)


class Clock:
    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


class Ledger:
    """Writes down what it is asked, and denies what it is told to."""

    guards = enforces = True

    def __init__(self, denies: Callable[[Asked], bool] = lambda asked: False) -> None:
        self.asked: list[Asked] = []
        self.denies = denies
        self.version = 1

    def decide(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        name: str,
        credential: str = "",
    ) -> Verdict:
        asked = (operation.name, resource.name, name)
        self.asked.append(asked)
        return Verdict(not self.denies(asked))


def judge(module: Any, request: object, ledger: Ledger) -> Denied | None:
    guard = Guard(ledger, LOOKUPS, Denials(Clock()))
    access = guard.admit(Principal("User", "alice"), "h", "")
    assert access is not None
    return guard.judge(module.RIGHTS, getattr(module, "PARTS", ()), request, access)


def test_names_come_from_where_the_table_says() -> None:
    ledger = Ledger()
    request = DescribeConfigsRequest([DescribeConfigsResource(2, "t"), DescribeConfigsResource(4, "1")])
    assert judge(k32_describe_configs, request, ledger) is None
    assert ledger.asked == [("DESCRIBE_CONFIGS", "TOPIC", "t"), ("DESCRIBE_CONFIGS", "CLUSTER", "")]


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (0, ("DESCRIBE", "GROUP", "g:x:0")),
        (1, ("DESCRIBE", "TRANSACTIONAL_ID", "g:x:0")),
        (2, ("DESCRIBE", "GROUP", "g")),
    ],
)
@pytest.mark.parametrize("many", [True, False])
def test_a_field_beside_the_name_says_what_kind_of_resource_it_is(
    kind: int, asked: Asked, many: bool
) -> None:
    """In the list of newer versions, and alone in older ones."""
    ledger = Ledger()
    names = {"coordinator_keys": ["g:x:0"]} if many else {"key": "g:x:0"}
    judge(k10_find_coordinator, FindCoordinatorRequest(key_type=kind, **names), ledger)
    assert ledger.asked == [asked]
    denied = judge(
        k10_find_coordinator, FindCoordinatorRequest(key_type=kind, **names), Ledger(lambda _: True)
    )
    assert denied is not None and denied.is_empty and (denied.whole is None) == many


def test_a_producer_without_an_id_needs_the_clusters_right() -> None:
    ledger = Ledger()
    judge(k22_init_producer_id, InitProducerIdRequest(None, 1), ledger)
    judge(k22_init_producer_id, InitProducerIdRequest("x", 1), ledger)
    assert ledger.asked == [("IDEMPOTENT_WRITE", "CLUSTER", ""), ("WRITE", "TRANSACTIONAL_ID", "x")]


def test_a44_what_is_denied_is_taken_out_and_the_rest_goes_on() -> None:
    request = CreateTopicsRequest([CreatableTopic("a"), CreatableTopic("b")])
    only_topics = Ledger(lambda asked: asked[1] == "CLUSTER")
    assert judge(k19_create_topics, request, only_topics) is None
    denied = judge(k19_create_topics, request, Ledger(lambda asked: asked[2] != "a"))
    assert denied is not None and denied.whole is None and not denied.is_empty
    assert [(each.entry.name, each.kind) for each in denied.refused] == [  # type: ignore[attr-defined]
        ("b", ErrorKind.TOPIC_AUTHORIZATION_FAILED)
    ]
    assert [topic.name for topic in request.topics] == ["a"]


def test_a52_mode_observe_takes_nothing_out_and_notes_it() -> None:
    ledger = Ledger(lambda asked: True)
    ledger.enforces = False
    denials = Denials(Clock())
    guard = Guard(ledger, LOOKUPS, denials)
    access = guard.admit(ANONYMOUS, "h", "some client")
    assert access is not None
    request = CreateTopicsRequest([CreatableTopic("a"), CreatableTopic("b")])
    assert guard.judge(k19_create_topics.RIGHTS, k19_create_topics.PARTS, request, access) is None
    assert len(request.topics) == 2
    assert [(want.operation.name, want.name) for want, _ in denials.since(0)] == [
        ("CREATE", "a"),
        ("CREATE", "b"),
    ]
    assert [(host, client) for host, client, _ in denials.nameless_since(0)] == [("h", "some client")]


def test_a14_nobody_without_a_name_is_let_in_where_it_counts() -> None:
    assert Guard(Ledger(), LOOKUPS, Denials(Clock())).admit(ANONYMOUS, "h", "") is None


def test_a49_a_broker_that_has_proved_itself_is_not_asked() -> None:
    ledger = Ledger(lambda asked: True)
    guard = Guard(ledger, LOOKUPS, Denials(Clock()))
    assert guard.admit(broker(1, 2), "h", "") is TRUSTED
    assert guard.judge(needs(read(GROUP, "group_id")), (), HeartbeatRequest("g"), TRUSTED) is None
    assert not ledger.asked


def test_a_queue_is_a_group_over_its_topics() -> None:
    ledger = Ledger(lambda asked: asked[2] == "webhooks-2" and asked[0] == "READ")
    guard = Guard(ledger, LOOKUPS, Denials(Clock()))
    access = Access(ledger, Denials(Clock()), Principal("User", "alice"), "h")
    rights = needs(
        read(GROUP, "queue of {webhook}"), read(TOPIC, "topics of {queue}"), write(TOPIC, "body.to[]")
    )
    guard.check_http(rights, {"webhook": "w", "queue": "q"}, {"to": ["a", "b"]}, access)
    assert [name for _, _, name in ledger.asked] == ["queue-of-w", "q", "q-2", "a", "b"]
    with pytest.raises(HeadraceError, match="needs Read on topic webhooks-2") as refused:
        guard.check_http(rights, {"webhook": "w", "queue": "webhooks"}, {}, access)
    assert refused.value.kind is ErrorKind.ACCESS_DENIED
    ledger.denies = lambda asked: asked[2] == "webhooks-2"
    ledger.version += 1
    with pytest.raises(HeadraceError, match="or you do not have access") as refused:
        guard.check_http(rights, {"webhook": "w", "queue": "webhooks"}, {}, access)
    assert refused.value.kind is ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, (
        "A45: who may not see it is not told that it is there"
    )


@pytest.mark.parametrize(
    "key", [key for key, entry in TABLE.items() if entry.parts], ids=lambda key: API[key].name
)
def test_a44_every_part_has_a_row_for_its_refusal(key: int) -> None:
    """Each list that is judged entry by entry has its place in the answer, with the error and the name of what was refused."""
    from headrace.kafka.refusals import add_refusals
    from headrace.security.guard import RefusedEntry

    for part in TABLE[key].parts:
        spec = {each.name: each for each in STRUCTS[API[key].request]}[part.request]
        assert spec.element is not None
        entry: Any = "named" if spec.element.struct is None else _filled(spec.element.struct)
        for version in range(TABLE[key].min_version, TABLE[key].max_version + 1):
            if not spec.carried_by(version):
                continue
            response = API[key].response()
            add_refusals(response, [RefusedEntry(part, entry, ErrorKind.TOPIC_AUTHORIZATION_FAILED)])
            sent = encode(response, version)
            (row,) = getattr(decode(API[key].response, version, sent), part.response)
            assert _errors(row) and set(_errors(row)) == {29}, row
            if key not in (30, 31, 49):
                assert "named" in msgspec.json.encode(msgspec.to_builtins(_plain(row))).decode() or _has_id(
                    row
                ), row


def _filled(kind: type[Any]) -> Any:
    made = kind()
    for spec in STRUCTS[kind]:
        if spec.kind is FieldKind.STRING:
            setattr(made, spec.name, "named")
        elif spec.kind is FieldKind.UUID:
            setattr(made, spec.name, TOPIC_ID)
        elif spec.kind is FieldKind.ARRAY and spec.element is not None:
            struct_kind = spec.element.struct
            entry: Any = (
                "named"
                if spec.element.kind is FieldKind.STRING
                else 0
                if struct_kind is None
                else _filled(struct_kind)
            )
            setattr(made, spec.name, [entry])
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if type(value) in STRUCTS:
        return {spec.name: _plain(getattr(value, spec.name)) for spec in STRUCTS[type(value)]}
    return value


def _errors(value: Any) -> list[int]:
    if isinstance(value, list):
        return [code for each in value for code in _errors(each)]
    if type(value) not in STRUCTS:
        return []
    found = []
    for spec in STRUCTS[type(value)]:
        held = getattr(value, spec.name)
        if spec.name in ("error_code", "partition_error_code"):
            found.append(held)
        elif spec.kind is FieldKind.ARRAY:
            found += _errors(held)
    return found


def _has_id(value: Any) -> bool:
    return TOPIC_ID.hex() in str(_plain(value))


# -- through the doors -------------------------------------------------------------------------------------------------


async def kafka(
    world: World, key: int, version: int, request: object, principal: Principal | None = None
) -> Any:
    """The answer; None when the connection was closed instead."""
    connection, sink = world.connect()
    if principal is not None:
        connection.session.prove(principal)
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
    return int(head.split()[1]), msgspec.json.decode(rest) if rest[:1] in (b"{", b"[") else None


def test_a39_a_door_in_mode_enforced_carries_out_nothing_that_is_denied() -> None:
    async def scenario() -> None:
        world = await World().start()
        admin = world.node.doors.security.admin
        try:
            await admin.set_super_users(["User:root"])
            assert (await kafka(world, ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m"))).error_code != 30
            await admin.set_mode(Mode.ENFORCED, ANONYMOUS)
            assert await kafka(world, ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m")) is None, "A14"
            assert (await kafka(world, ApiKey.API_VERSIONS, 3, API[18].request("a", "1"))).error_code == 0
            alice = Principal("User", "alice")
            beat = await kafka(world, ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m"), alice)
            assert beat.error_code == ErrorKind.GROUP_AUTHORIZATION_FAILED.kafka_code
            made = await kafka(
                world, ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([CreatableTopic("new", 1, 1)]), alice
            )
            assert [(row.name, row.error_code) for row in made.topics] == [("new", 29)]
            assert world.node.metadata.image.topic("new") is None
            produced = await kafka(world, ApiKey.PRODUCE, 9, produce_request("fuzz-plain", b"", 0), alice)
            assert produced.topics[0].partitions[0].error_code == 29
            root = Principal("User", "root")
            beat = await kafka(world, ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m"), root)
            assert beat.error_code != ErrorKind.GROUP_AUTHORIZATION_FAILED.kafka_code

            port = world.node.http_port
            status, body = await http(port, "POST", "/queues/q/messages", b"x", "content-type: text/plain")
            assert (status, body["code"]) == (401, "UNAUTHENTICATED")
            assert world.node.services.queues.find("q") is None
            target = ("x-amz-target: AmazonSQS.CreateQueue", "content-type: application/x-amz-json-1.0")
            status, body = await http(port, "POST", "/", b'{"QueueName": "q"}', *target)
            assert status == 403 and "MissingAuthenticationToken" in body["__type"]
            assert (await http(port, "GET", "/livez", b""))[0] == 200
            await admin.set_mode(Mode.OPEN, ANONYMOUS)
            assert (await http(port, "GET", "/api/v1/queues", b""))[0] == 200
        finally:
            await world.node.stop()

    asyncio.run(scenario())
