"""F31, A27: what one broker asks another over HTTP is that request, from that broker, now, and once.

Requests are recorded where they leave a shipped broker, and said again by a stranger who can reach every port.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from queue_clients import HTTP_PORT, SqsClient
from queue_stage import Stage

from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.http.forwarding import Forwarder
from headrace.http.messages import Request
from headrace.http.peer_seals import SEAL, WINDOW_MS, Nonces
from headrace.net.h1_client import H1Client, Origin

QUEUE = "jobs.fifo"
HOUR_MS = 3_600_000


class Sent(NamedTuple):
    """A request as it left a broker."""

    origin: Origin
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Wire:
    """Between the brokers: everything is recorded, and while `hold` is on nothing that was forwarded arrives."""

    def __init__(self, stage: Stage) -> None:
        self.sent: list[Sent] = []
        self.hold = False
        for node in stage.nodes.values():
            self._tap(node.service.doors.peer_requests._client)

    def _tap(self, client: H1Client) -> None:
        request = client.request

        async def recorded(origin: Origin, method: str, target: str, **named: Any) -> Any:
            self.sent.append(Sent(origin, method, target, dict(named["headers"]), named["body"]))
            if self.hold and "x-amz-target" in named["headers"]:
                await asyncio.get_running_loop().create_future()
            return await request(origin, method, target, **named)

        client.request = recorded  # type: ignore[method-assign,assignment]

    def last(self, action: str) -> Sent:
        return next(sent for sent in reversed(self.sent) if action in sent.headers.get("x-amz-target", ""))


async def say(
    sent: Sent, *, origin: Origin | None = None, body: bytes | None = None, target: str = "", **changed: str
) -> Any:
    """As a stranger; the answer."""
    headers = {**sent.headers, **{name.replace("_", "-"): value for name, value in changed.items()}}
    return await H1Client().request(
        origin or sent.origin, sent.method, target or sent.target, headers=headers,
        body=sent.body if body is None else body, timeout_s=10.0,
    )  # fmt: skip


def is_refused(got: Any) -> bool:
    return got.status == 403 and got.headers.get("x-headrace-refused") == "PEER_REFUSED"


async def url_of(client: SqsClient) -> str:
    made = await client.insist("CreateQueue", QueueName=QUEUE, Attributes={"FifoQueue": "true"})
    return str(made["QueueUrl"])


async def receive_elsewhere(stage: Stage, wire: Wire, url: str) -> Sent:
    """A ReceiveMessage that broker 1 passes on to broker 2, as it left."""
    service = stage.nodes[1].service
    headers = {
        b"host": b"localhost:9324",
        b"x-amz-target": b"AmazonSQS.ReceiveMessage",
        b"content-type": b"application/x-amz-json-1.0",
    }
    body = json.dumps({"QueueUrl": url}).encode()
    forwarder = Forwarder(service.broker.node_id, service.doors.peer_requests)
    task = asyncio.ensure_future(
        forwarder.forward(Request("POST", "/", headers=headers, body=body), WrongBroker(2, QUEUE))
    )
    await asyncio.sleep(0.5)
    if not wire.hold:
        assert (await task).status == 200
    return wire.last("ReceiveMessage")


def play(story: Any, seed: int = 5) -> None:
    async def scene(stage: Stage) -> None:
        client = SqsClient([node.address for node in stage.nodes.values()], stage.dice.fork("client"))
        url = await url_of(client)
        for number in range(3):
            await client.insist(
                "SendMessage", QueueUrl=url, MessageBody=f"{number}", MessageGroupId=f"{number}",
                MessageDeduplicationId=f"{number}",
            )  # fmt: skip
        await story(stage, client, url, Wire(stage))

    Stage(seed, scene).perform()


def test_f31_a_captured_receive_does_not_become_a_purge_nor_anything_else() -> None:
    async def story(stage: Stage, client: SqsClient, url: str, wire: Wire) -> None:
        wire.hold = True
        sent = await receive_elsewhere(stage, wire, url)
        purge = json.dumps({"QueueUrl": url, "MaxNumberOfMessages": 10}).encode()
        for changes in (
            {"x_amz_target": "AmazonSQS.PurgeQueue"},
            {"x_amz_target": "AmazonSQS.PurgeQueue", "body": purge},
            {"body": purge},
            {"content_type": "application/x-www-form-urlencoded", "body": b"Action=PurgeQueue"},
            {"x_headrace_host": "elsewhere.example"},
            {"x_something": "new"},
            {"target": "/?x=1"},
            {"target": "/000000000000/other"},
        ):
            assert is_refused(await say(sent, **changes)), changes
        wire.hold = False
        # What was held back arrives after all: it is in time, and nobody has said it yet.
        got = await say(sent)
        assert got.status == 200 and len(json.loads(got.body)["Messages"]) == 1

    play(story)


def test_f31_nothing_is_said_twice_or_elsewhere() -> None:
    async def story(stage: Stage, client: SqsClient, url: str, wire: Wire) -> None:
        sent = await receive_elsewhere(stage, wire, url)
        assert is_refused(await say(sent))
        wire.hold = True
        held = await receive_elsewhere(stage, wire, url)
        for node in stage.nodes.values():
            if node.address != held.origin.host:
                assert is_refused(await say(held, origin=Origin(node.address, HTTP_PORT)))

    play(story)


def test_f31_a_request_that_comes_late_is_not_heard() -> None:
    async def story(stage: Stage, client: SqsClient, url: str, wire: Wire) -> None:
        wire.hold = True
        sent = await receive_elsewhere(stage, wire, url)
        await asyncio.sleep(WINDOW_MS / 1000 + 1)
        assert is_refused(await say(sent))
        # A clock that is set back does not make it new.
        for node in stage.nodes.values():
            node.clock.jump_wall(-60_000)
        assert is_refused(await say(sent))

    play(story)


def test_a27_brokers_whose_clocks_differ_by_an_hour_still_hear_each_other() -> None:
    async def story(stage: Stage, client: SqsClient, url: str, wire: Wire) -> None:
        one = next(iter(stage.nodes.values()))
        one.clock.jump_wall(HOUR_MS)
        one.kill()
        one.start()
        while one.service is None or not one.service.ready:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        for node in stage.nodes.values():
            asker = SqsClient([node.address], stage.dice.fork("asker"))
            got = await asker.insist("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
            assert got["Attributes"]["ApproximateNumberOfMessages"] == "3"
            for _ in range(2):
                await asker.insist("ReceiveMessage", QueueUrl=url, VisibilityTimeout=0)
        learnt = [node.service.doors.peer_requests._ahead_of for node in stage.nodes.values()]
        assert any(learnt), "somebody was told what time it is"

    play(story)


@pytest.mark.parametrize("seal", [None, "", "1;2;3", "1;1;1;1;1;1;x;;00"])
def test_a1_internal_routes_and_seals_are_for_brokers(seal: str | None) -> None:
    async def story(stage: Stage, client: SqsClient, url: str, wire: Wire) -> None:
        origin = Origin(next(iter(stage.nodes.values())).address, HTTP_PORT)
        headers = {} if seal is None else {SEAL.decode(): seal}
        asked = Sent(
            origin,
            "POST",
            "/internal/queue-desk",
            {**headers, "content-type": "application/vnd.headrace.msgpack"},
            b"\x80",
        )
        assert is_refused(await say(asked))
        if seal is not None:
            assert is_refused(await say(asked, target="/"))

    play(story)


def test_nonces_are_remembered_for_a_minute_and_then_forgotten() -> None:
    nonces = Nonces()
    assert nonces.is_news("a", 1_000)
    for now_ms in (1_000, 31_000, 60_999):
        assert not nonces.is_news("a", now_ms)
    for now_ms in range(100_000, 400_000, 10_000):
        assert nonces.is_news(f"{now_ms}", now_ms)
    assert sum(map(len, nonces._generations)) <= 9


def test_the_region_of_a_signature_that_stays_behind_is_told_by_brokers_and_by_nobody_else() -> None:
    """Decision 0082: or a forwarded request would be about another region's queue."""

    async def story(stage: Stage, client: SqsClient, url: str, wire: Wire) -> None:
        headers = {
            b"host": b"localhost:9324",
            b"x-amz-target": b"AmazonSQS.GetQueueAttributes",
            b"content-type": b"application/x-amz-json-1.0",
            b"x-headrace-region": b"ap-southeast-2",
        }
        body = json.dumps({"QueueUrl": url, "AttributeNames": ["QueueArn"]}).encode()
        service = stage.nodes[1].service
        forwarder = Forwarder(service.broker.node_id, service.doors.peer_requests)

        async def region(told: str) -> str:
            request = Request("POST", "/", headers=headers, body=body)
            got = await forwarder.forward(request, WrongBroker(2, QUEUE), told)
            return str(json.loads(got.body)["Attributes"]["QueueArn"]).split(":")[3]

        assert await region("eu-west-1") == "eu-west-1"
        assert await region("") == "us-east-1"
        claimed = {name.decode(): value.decode() for name, value in headers.items() if name != b"host"}
        stranger = Sent(wire.last("GetQueueAttributes").origin, "POST", "/", claimed, body)
        assert "sqs:us-east-1:" in (await say(stranger)).body.decode()

    play(story)
