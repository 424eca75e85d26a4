"""F1: a broker that has not heard that a queue was deleted and made again does not speak for the life before (decision 0060).

Step by step what seed 10200014 found: one broker is cut off from the coordinator. Meanwhile the queue that it leads is deleted, and made
again, on that very broker. Whoever knows the new life asks it, and it still has the old one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
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
from headrace.broker.namesakes import Namesakes
from headrace.broker.queueing.routing.lives import Lives
from headrace.broker.queueing.routing.peer_calls import AskReceive, AskStats, decode_question, encode_question
from headrace.cluster.rows import Namesake
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.testing.sim_node import SimNode
from headrace.wire.api import ApiKey
from headrace.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

QUEUE = "again"
STALE, ASKED, GONE = 3, 1, 2
"""The broker that does not hear, the one that clients talk to, and one that may be dead."""


async def answered(call: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return await call
    except (Refused, Unknown):
        return None


async def make(kafka: ClusterClient, sqs: SqsClient, replicas: Sequence[int] = (STALE,)) -> None:
    """The queue, with its replicas on these brokers."""
    topic = CreatableTopic(QUEUE, -1, -1, [CreatableReplicaAssignment(0, list(replicas))], [])
    answer = await kafka.ask_anyone(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest([topic], 5_000, False))
    assert answer.topics[0].error_code in (ErrorKind.NONE, ErrorKind.TOPIC_ALREADY_EXISTS), (
        "an attempt before may have done it"
    )
    await sqs.insist("CreateQueue", QueueName=QUEUE)


def in_sync(stage: Stage) -> tuple[int, ...]:
    topic = stage.nodes[ASKED].service.broker.image.topic(QUEUE)
    return () if topic is None or topic.partitions[0] is None else topic.partitions[0].isr


async def made_again(stage: Stage) -> tuple[SqsClient, list[str]]:
    """Deleted and made again, elsewhere, while the one broker that led it, alone in sync, is cut off from the coordinator; and what that
    broker hands to somebody who knows the name only."""
    client = SqsClient([stage.nodes[ASKED].address], stage.dice.fork("client"))
    direct = SqsClient([stage.nodes[STALE].address], stage.dice.fork("direct"))
    kafka = stage._kafka(QUEUE, "admin")
    await make(kafka, client, (STALE, GONE))
    stage.nodes[GONE].kill()
    await direct.insist("SendMessage", QueueUrl=QUEUE, MessageBody="old")
    metadata = stage.nodes[ASKED].service.broker.metadata
    await metadata.wait_until(lambda: in_sync(stage) == (STALE,), 30.0)
    kafka._addresses = kafka._addresses[:1]
    stage.coordinators[f"b{STALE}"].reachable = False
    await client.insist("DeleteQueue", QueueUrl=QUEUE)
    await make(kafka, client, (ASKED,))
    found = await answered(direct.ask("ReceiveMessage", QueueUrl=QUEUE, MaxNumberOfMessages=10)) or {}
    return client, [row["Body"] for row in found.get("Messages", ())]


async def wait_for_who_led_it(stage: Stage) -> None:
    client, found = await made_again(stage)
    assert found == [], "of the life before"
    stage.coordinators[f"b{STALE}"].reachable = True
    await client.insist("SendMessage", QueueUrl=QUEUE, MessageBody="new")
    answer = await client.insist("ReceiveMessage", QueueUrl=QUEUE, WaitTimeSeconds=5)
    assert [row["Body"] for row in answer["Messages"]] == ["new"]


def test_f1_a_name_is_made_again_when_who_led_it_has_heard_or_is_over() -> None:
    """Decision 0118; queue seed 18100022."""
    act(wait_for_who_led_it)


@pytest.mark.usefixtures("unasked")
def test_f1_made_at_once_the_life_before_is_still_served() -> None:
    """The mutant: so that the test above is known to look in the right place."""

    async def story(stage: Stage) -> None:
        _, found = await made_again(stage)
        assert found == ["old"]

    act(story)


def test_a_name_is_free_at_once_when_all_have_heard() -> None:
    """It costs a question, not a lease."""

    async def story(stage: Stage) -> None:
        client = SqsClient([stage.nodes[ASKED].address], stage.dice.fork("client"))
        kafka = stage._kafka(QUEUE, "admin")
        await make(kafka, client)
        await client.insist("DeleteQueue", QueueUrl=QUEUE)
        began = asyncio.get_running_loop().time()
        await make(kafka, client)
        assert asyncio.get_running_loop().time() - began < 1, "virtual seconds"

    act(story)


async def nobody_asked(self: Namesakes, name: str, *, but: Namesake | None = None) -> Namesake | None:
    """As before decision 0118, and as it is when a broker of then makes the name again."""
    return but


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are made again though one broker has not heard that they were deleted."""
    monkeypatch.setattr(Namesakes, "are_gone", nobody_asked)


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


@pytest.mark.usefixtures("unasked")
def test_f1_the_life_before_is_neither_received_from_nor_sent_to() -> None:
    act(receive_and_send)


@pytest.mark.usefixtures("unasked")
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


@pytest.mark.usefixtures("unasked")
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


@pytest.mark.usefixtures("unasked")
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
