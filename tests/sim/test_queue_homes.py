"""One queue on three brokers, on virtual time: a move task reaches all of them; what waits in a topic outlives its leaders."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import _committed, _now
from cluster_sim import BROKERS
from queue_clients import Refused, SqsClient, Unknown
from queue_stage import CONFIGS, Stage

from headrace.broker.load import Load
from headrace.broker.queueing.local.hosted import PATIENCE_S
from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.records.build import Record, build_batch


async def receive_all(sqs: SqsClient, queue: str, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        try:
            answer = await sqs.ask(
                "ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=600
            )
        except (Refused, Unknown):
            continue
        found += [row["Body"] for row in answer.get("Messages", ())]
    return found


def test_a_move_task_moves_what_other_brokers_lead() -> None:
    async def play(stage: Stage) -> None:
        await stage._kafka("dead", "admin").create_topic(3, BROKERS, CONFIGS)
        sqs = stage._sqs("admin")
        await sqs.insist("CreateQueue", QueueName="dead")
        policy = {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead", "maxReceiveCount": 5}
        await sqs.insist("CreateQueue", QueueName="jobs", Attributes={"RedrivePolicy": json.dumps(policy)})
        for node in stage.nodes.values():  # each places its messages in the partition that it leads itself
            here = SqsClient([node.address], stage.dice.fork(node.name))
            for number in range(5):
                await here.insist("SendMessage", QueueUrl="dead", MessageBody=f"{node.name}.{number}")
        leaders = {
            tp.partition: node.name
            for node in stage.nodes.values()
            for tp in node.service.services.queue_rooms.shards.hosted
            if tp.topic == "dead"
        }
        assert len(set(leaders.values())) == 3, "each broker leads one"
        await sqs.insist(
            "StartMessageMoveTask",
            SourceArn="arn:aws:sqs:us-east-1:000000000000:dead",
            DestinationArn="arn:aws:sqs:us-east-1:000000000000:jobs",
        )
        found = await receive_all(sqs, "jobs", 15)
        assert sorted(found) == sorted(f"b{broker}.{number}" for broker in (1, 2, 3) for number in range(5))
        for host in stage.nodes.values():
            ask = SqsClient([host.address], stage.dice.fork("ask"))
            got = await ask.insist("GetQueueAttributes", QueueUrl="jobs", AttributeNames=["All"])
            assert got["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "15", "whoever is asked"

    Stage(1, play).perform()


@pytest.mark.parametrize("sent", ["before", "after"])
def test_a_receiver_that_waits_waits_for_a_shard_that_loads(
    sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked for time; what the shard has when it has loaded, it gets. Who does not ask for time is told to try again when it takes long."""
    load = Load.load

    async def slowly(self: Load) -> None:
        if self.generation > 1:
            await asyncio.sleep(2 * PATIENCE_S)
        await load(self)

    monkeypatch.setattr(Load, "load", slowly)

    async def play(stage: Stage) -> None:
        sqs = stage._sqs("admin")
        await sqs.insist("CreateQueue", QueueName="jobs")
        if sent == "before":
            await sqs.insist("SendMessage", QueueUrl="jobs", MessageBody="m")
        (home,) = (
            node
            for node in stage.nodes.values()
            if TopicPartition("jobs", 0) in node.service.services.queue_rooms.shards.hosted
        )
        hosted = home.service.services.queue_rooms.shards.hosted[TopicPartition("jobs", 0)]
        hosted.load.distrust(ErrorKind.UNKNOWN_SERVER_ERROR)
        here = SqsClient([home.address], stage.dice.fork("here"))
        with pytest.raises(Unknown):
            await here.ask("ReceiveMessage", QueueUrl="jobs")
        waiting = asyncio.ensure_future(here.ask("ReceiveMessage", 60.0, QueueUrl="jobs", WaitTimeSeconds=20))
        if sent == "after":
            await asyncio.sleep(1.0)
            assert not hosted.ready
            await sqs.insist("SendMessage", QueueUrl="jobs", MessageBody="m")
        (message,) = (await waiting)["Messages"]
        assert message["Body"] == "m"

    Stage(1, play).perform()


@pytest.mark.parametrize("seed", [1])
def test_what_waits_in_a_topic_outlives_its_leaders(seed: int) -> None:
    """Q7: never early, each once, whoever dies: the release is one transaction (R60)."""

    async def play(stage: Stage) -> None:
        kafka = stage._kafka("later", "admin")
        await kafka.create_topic(1, BROKERS, {**CONFIGS, "headrace.delay.enabled": "true"})
        clock = stage.nodes[1].clock
        due: dict[str, float] = {}
        for number in range(30):
            delay_ms = 2_000 + 400 * number
            value, wall_ms = f"m{number}", clock.wall_ms()
            due[value] = _now() + (delay_ms - 1) / 1000  # the clock has whole milliseconds
            record = Record(None, value.encode(), (("headrace-delay-ms", str(delay_ms).encode()),), wall_ms)
            batch = build_batch(
                [record], wall_ms=wall_ms, producer_id=900 + number, producer_epoch=0, base_sequence=0
            )
            await kafka.produce(0, batch, _now() + 30)
        seen: dict[str, float] = {}
        position, killed = 0, 0
        while len(seen) < 30:
            row = await kafka.fetch(0, position)
            if row is not None:
                records, position = _committed(row, position)
                for _, value in records:
                    assert value not in seen, "each once"
                    seen[value] = _now()
            if len(seen) >= 8 * (killed + 1) and killed < 2:
                killed += 1
                leader = next(
                    node
                    for node in stage.nodes.values()
                    if node.is_running
                    and any(tp.topic == "later" for tp in node.service.services.queue_rooms.shards.hosted)
                )
                leader.cut_power()
                leader.start()
            await asyncio.sleep(0.05)
        assert killed == 2
        assert all(seen[value] >= due[value] for value in due), "never before its time"
        assert await drained(kafka, position) == []

    async def drained(kafka: object, position: int) -> list[str]:
        found: list[str] = []
        for _ in range(20):
            row = await kafka.fetch(0, position)  # type: ignore[attr-defined]
            if row is not None:
                records, position = _committed(row, position)
                found += [value for _, value in records]
        return found

    Stage(seed, play).perform()


@pytest.mark.parametrize("seed", range(2))
def test_the_entries_of_a_batch_keep_their_order_within_a_group_whoever_leads_it(seed: int) -> None:
    """R59: each in its own request, they would overtake one another on the way to the home of their group."""

    async def play(stage: Stage) -> None:
        await stage._kafka("jobs.fifo", "admin").create_topic(2, BROKERS, CONFIGS)
        sqs = stage._sqs("client")
        await sqs.insist("CreateQueue", QueueName="jobs.fifo", Attributes={"FifoQueue": "true"})
        bodies = [f"{group}{number}" for number in range(5) for group in "ab"]
        rows = [
            {"Id": body, "MessageBody": body, "MessageGroupId": body[0], "MessageDeduplicationId": body}
            for body in bodies
        ]
        twin = {**rows[0], "Id": "twin", "MessageBody": "a twin"}
        for node in stage.nodes.values():
            here = SqsClient([node.address], stage.dice.fork(node.name))
            answer = await here.ask("SendMessageBatch", QueueUrl="jobs.fifo", Entries=[*rows[:9], twin])
            assert [row["Id"] for row in answer["Successful"]] == [*bodies[:9], "twin"]
            assert answer["Successful"][0]["MessageId"] == answer["Successful"][-1]["MessageId"]
            answer = await here.ask("SendMessageBatch", QueueUrl="jobs.fifo", Entries=rows[9:])
            found: list[str] = []
            while len(found) < 10:
                answer = await here.ask("ReceiveMessage", QueueUrl="jobs.fifo", MaxNumberOfMessages=10)
                for row in answer.get("Messages", ()):
                    found.append(row["Body"])
                    await here.ask("DeleteMessage", QueueUrl="jobs.fifo", ReceiptHandle=row["ReceiptHandle"])
            for group in "ab":
                assert [body for body in found if body[0] == group] == [f"{group}{n}" for n in range(5)]
            for row in rows:
                row["MessageDeduplicationId"] += "."
            twin["MessageDeduplicationId"] += "."

    Stage(seed, play).perform()


@pytest.mark.parametrize("seed", [1])
def test_what_lies_in_an_idle_queue_is_there_after_a_restart(seed: int) -> None:
    """The shard is loaded before its data is led; what the leader knows to be committed is news to it, although nothing
    comes in any more. Seeds 1200061 and 1200126 waited for the next message."""

    async def play(stage: Stage) -> None:
        await stage._kafka("jobs", "admin").create_topic(3, BROKERS, CONFIGS)
        sqs = stage._sqs("client")
        await sqs.insist("CreateQueue", QueueName="jobs")
        bodies = [f"{number}" for number in range(9)]
        for body in bodies:
            await sqs.insist("SendMessage", QueueUrl="jobs", MessageBody=body)
        await asyncio.sleep(30.0)  # high watermarks are written down now and then (R20)
        for node in stage.nodes.values():
            node.kill()
        for node in stage.nodes.values():
            node.start()
        async with asyncio.timeout(60.0):
            assert sorted(await receive_all(sqs, "jobs", 9)) == bodies

    Stage(seed, play).perform()
