"""F1: a broker that has not heard that a queue was deleted and made again does not speak for the life before (decision 0060).

Step by step what seed 10200014 found: one broker is cut off from the coordinator. Meanwhile the queue that it leads is deleted, and made
again, on that very broker. Whoever knows the new life asks it, and it still has the old one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import ClusterClient
from queue_clients import Refused, SqsClient, Unknown
from queue_stage import Stage
from test_lease import soon

from headrace.broker.latest import Latest
from headrace.broker.queueing.routing.lives import Lives
from headrace.broker.queueing.routing.peer_calls import AskReceive, AskStats, decode_question, encode_question
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.testing.sim_node import SimNode
from headrace.wire.api import ApiKey
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

QUEUE = "again"
STALE, ASKED = 3, 1
"""The broker that does not hear, and the one that clients talk to."""


async def make(kafka: ClusterClient, sqs: SqsClient) -> None:
    """The queue, with its only replica on the one broker."""
    topic = CreatableTopic(QUEUE, -1, -1, [CreatableReplicaAssignment(0, [STALE])], [])
    answer = await kafka.ask_anyone(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest([topic], 5_000, False))
    assert answer.topics[0].error_code == 0
    await sqs.insist("CreateQueue", QueueName=QUEUE)


async def live_again(stage: Stage) -> tuple[SqsClient, SimNode]:
    """A queue with a message in its first life, and one broker that has not heard of the second."""
    client = SqsClient([stage.nodes[ASKED].address], stage.dice.fork("client"))
    kafka = stage._kafka(QUEUE, "admin")
    await make(kafka, client)
    await client.insist("SendMessage", QueueUrl=QUEUE, MessageBody="old")
    stage.coordinators[f"b{STALE}"].reachable = False
    kafka._addresses = kafka._addresses[:1]
    await client.insist("DeleteQueue", QueueUrl=QUEUE)
    await make(kafka, client)
    stale = stage.nodes[STALE]
    assert (
        stale.service.broker.image.topic(QUEUE).id != stage.nodes[ASKED].service.broker.image.topic(QUEUE).id
    )
    return client, stale


async def answered(call: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return await call
    except (Refused, Unknown):
        return None


def act(story: Callable[[Stage], Awaitable[None]]) -> None:
    Stage(7, story).perform()


async def receive_and_send(stage: Stage) -> None:
    client, _ = await live_again(stage)
    found = await answered(client.ask("ReceiveMessage", QueueUrl=QUEUE, MaxNumberOfMessages=10))
    sent = await answered(client.ask("SendMessage", QueueUrl=QUEUE, MessageBody="new"))
    stage.coordinators[f"b{STALE}"].reachable = True
    async with asyncio.timeout_at(soon()):
        if sent is None:
            await client.insist("SendMessage", QueueUrl=QUEUE, MessageBody="new")
        bodies = [row["Body"] for row in (found or {}).get("Messages", ())]
        while len(bodies) < 1:
            got = await client.insist("ReceiveMessage", QueueUrl=QUEUE, WaitTimeSeconds=2)
            bodies += [row["Body"] for row in got.get("Messages", ())]
    assert bodies == ["new"]


def test_f1_the_life_before_is_neither_received_from_nor_sent_to() -> None:
    act(receive_and_send)


@pytest.mark.parametrize("sends", [False, True], ids=["received", "sent"])
def test_f1_without_the_ids_it_is(sends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: so that the test above is known to look in the right place."""
    monkeypatch.setattr(Lives, "check", lambda *_: None)

    async def story(stage: Stage) -> None:
        client, _ = await live_again(stage)
        if sends:
            assert await answered(client.ask("SendMessage", QueueUrl=QUEUE, MessageBody="new")), (
                "into nowhere"
            )
        else:
            found = await client.ask("ReceiveMessage", QueueUrl=QUEUE)
            assert [row["Body"] for row in found["Messages"]] == ["old"]

    act(story)


def test_f1_who_has_old_news_reads_again_before_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator answers, but the watch is late: then nobody is refused, and the new life answers."""

    async def story(stage: Stage) -> None:
        client, stale = await live_again(stage)
        reads: list[int] = []
        news = Latest.news

        async def counted(self: Latest) -> bool:
            if self._runtime is stale.service.broker.runtime:
                reads.append(1)
                stage.coordinators[f"b{STALE}"].reachable = True
            return await news(self)

        monkeypatch.setattr(Latest, "news", counted)
        await client.ask("SendMessage", QueueUrl=QUEUE, MessageBody="new")
        assert reads, "it was asked about an id that it did not know"
        found = await client.ask("ReceiveMessage", QueueUrl=QUEUE, WaitTimeSeconds=5)
        assert [row["Body"] for row in found["Messages"]] == ["new"]

    act(story)


def test_f1_what_is_passed_on_by_its_path_is_not_answered_from_older_news() -> None:
    """A request that only one broker can answer is passed on by its name; it says how new its sender's news are."""

    async def story(stage: Stage) -> None:
        await live_again(stage)
        peers = stage.nodes[ASKED].service.doors.peer_requests
        headers = {"x-headrace-client": "broker"}
        got = await peers.ask(STALE, "POST", f"/queues/{QUEUE}/receive", headers, b"", 5.0)
        assert got.status == 503 and b"old" not in got.body, got
        stage.coordinators[f"b{STALE}"].reachable = True
        got = await peers.ask(STALE, "POST", f"/queues/{QUEUE}/receive", headers, b"", 5.0)
        assert got.status == 200 and b"old" not in got.body

    act(story)


def test_a_question_of_the_version_before_is_answered_as_before() -> None:
    """It says no ids, and the next version's says some that the version before does not know."""
    before = {"type": "AskStanding", "queue": QUEUE}
    question = decode_question(msgspec.msgpack.encode(before))
    assert question == AskStats(queue=QUEUE)
    ask = AskReceive(
        queue=QUEUE, queue_id="q", topic_ids={QUEUE: b"t"}, count=1, visibility_ms=None, wait_ms=0, owner=""
    )
    assert decode_question(encode_question(ask)) == ask

    async def story(stage: Stage) -> None:
        client = SqsClient([stage.nodes[ASKED].address], stage.dice.fork("client"))
        await make(stage._kafka(QUEUE, "admin"), client)
        lives = stage.nodes[STALE].service.services.queue_rooms.lives
        lives.check(question)
        lives.check(lives.named(question))
        with pytest.raises(HeadraceError) as refused:
            lives.check(msgspec.structs.replace(lives.named(question), queue_id="another"))
        assert refused.value.kind is ErrorKind.UNKNOWN_TOPIC_ID

    act(story)
