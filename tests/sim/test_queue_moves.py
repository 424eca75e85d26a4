"""R59 on virtual time: message groups of a FIFO queue that gets another number of partitions, one play for each trap."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_sim import BROKERS
from queue_clients import Refused, SqsClient, Unknown
from queue_stage import CONFIGS, Stage

from headrace.broker.queueing import names
from headrace.broker.queueing.routing.peer_calls import AskSend, Outgoing
from headrace.cluster.election import ElectionType
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition, shard_for
from headrace.queues.commands import Source
from headrace.records.build import Record
from headrace.testing.sim_node import SimNode

QUEUE = "jobs.fifo"
MOVES = next(name for name in ("a", "b", "c", "d") if shard_for(name, 2) == 1)
STAYS = next(name for name in ("a", "b", "c", "d") if shard_for(name, 2) == 0)


class Move:
    """A FIFO queue with one partition in use and two there."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.sqs = stage._sqs("client")

    async def make(self, **changes: Any) -> None:
        await self.stage._kafka(QUEUE, "admin").create_topic(2, BROKERS, CONFIGS)
        await self.sqs.insist(
            "CreateQueue",
            QueueName=QUEUE,
            Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
        )
        await until(lambda: all(each.catalog.find(QUEUE) is not None for each in self.rooms()))
        await self.change(active=1, **changes)

    def rooms(self) -> list[Any]:
        return [
            node.service.services.queue_rooms
            for node in self.stage.nodes.values()
            if node.process is not None and not node.process.is_paused
        ]

    async def change(self, *, config: dict[str, Any] | None = None, **changes: Any) -> None:
        rooms = self.rooms()[0]
        if config:
            changes["config"] = {**rooms.catalog.spec(QUEUE).config, **config}
        await rooms.catalog.change(QUEUE, **changes)
        await until(
            lambda: all(
                getattr(other.catalog.spec(QUEUE), name) == value
                for other in self.rooms()
                for name, value in changes.items()
            )
        )

    async def begin(self) -> None:
        await self.change(active=2, moving_from=1, era=self.rooms()[0].catalog.spec(QUEUE).era + 1)

    def home(self, number: int) -> SimNode:
        """Who leads the journal of a partition."""
        tp = TopicPartition(QUEUE, number)
        return next(
            node
            for node in self.stage.nodes.values()
            if tp in node.service.services.queue_rooms.shards.hosted
        )

    async def send(self, body: str, group: str = MOVES, sqs: SqsClient | None = None) -> int:
        """The partition that it came to lie in."""
        while True:
            try:
                answer = await (sqs or self.sqs).ask(
                    "SendMessage", QueueUrl=QUEUE, MessageBody=body, MessageGroupId=group
                )
                return _partition(answer)
            except (Refused, Unknown):
                await asyncio.sleep(0.05)

    async def receive(self, count: int = 1, visibility_s: int = 600) -> list[dict[str, Any]]:
        while True:
            try:
                answer = await self.sqs.ask(
                    "ReceiveMessage",
                    QueueUrl=QUEUE,
                    MaxNumberOfMessages=count,
                    VisibilityTimeout=visibility_s,
                    WaitTimeSeconds=1,
                )
            except (Refused, Unknown):
                continue
            if answer.get("Messages"):
                return list(answer["Messages"])

    async def delete(self, row: dict[str, Any]) -> None:
        await self.sqs.insist("DeleteMessage", QueueUrl=QUEUE, ReceiptHandle=row["ReceiptHandle"])

    async def in_order(self) -> list[str]:
        found: list[str] = []
        while self.left():
            for row in await self.receive(10):
                found.append(row["Body"])
                await self.delete(row)
        return found

    def left(self) -> int:
        return sum(
            counts.end_offset - counts.start_offset
            for each in self.rooms()
            for _, counts in each.local.counts(each.catalog.spec(QUEUE))
        )


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def _partition(answer: dict[str, Any]) -> int:
    sent = names.decode_message_id(answer["MessageId"])
    assert sent is not None
    return sent[1]


def _record(body: str, group: str = MOVES) -> Record:
    return Record(None, body.encode(), ((names.GROUP, group.encode()),), 0)


def test_who_can_not_tell_whether_a_group_is_still_there_lets_nothing_stay() -> None:
    """Seed 900124: the home of the old partition followed the data, took "I do not know" for "it is here", and the message
    overtook those that had gone to the new partition."""

    async def play(stage: Stage) -> None:
        move = Move(stage)
        await move.make()
        await move.begin()
        assert await move.send("first") == 1
        home = move.home(0)
        services = home.service.services
        others = [node for node in stage.nodes if stage.nodes[node] is not home]
        await services.partition_admin.move(QUEUE, 0, (*others, services.broker.node_id))
        await services.partition_admin.elect(QUEUE, 0, ElectionType.PREFERRED)
        await until(lambda: not services.queue_rooms.shards.hosted[TopicPartition(QUEUE, 0)].data.is_leader)
        assert await move.send("second", sqs=SqsClient([home.address], stage.dice.fork("x"))) == 1
        assert await move.in_order() == ["first", "second"]

    Stage(1, play).perform()


def test_what_was_on_its_way_before_the_change_is_there() -> None:
    """It is in the log and not committed when the next one asks; that one must not go where this one is not."""

    async def play(stage: Stage) -> None:
        move = Move(stage)
        await move.make()
        home = move.home(0)
        here = SqsClient([home.address], stage.dice.fork("x"))
        others = [node for node in stage.nodes.values() if node is not home]
        for node in others:
            node.pause()
        first = asyncio.ensure_future(move.send("first", sqs=here))
        await asyncio.sleep(0.2)
        await move.begin()
        second = asyncio.ensure_future(
            move.send("second", sqs=SqsClient([home.address], stage.dice.fork("y")))
        )
        await asyncio.sleep(0.5)
        for node in others:
            node.resume()
        places = [await first, await second, await move.send("third")]
        assert len(set(places)) == 1
        assert (await move.in_order())[-1] == "third"

    Stage(2, play).perform()


def test_a_message_is_written_only_in_the_era_that_its_place_was_chosen_in() -> None:
    async def play(stage: Stage) -> None:
        move = Move(stage)
        await move.make()
        await move.begin()
        await move.change(active=1, moving_from=0, era=2)
        assert await move.send("first") == 0
        await move.begin()
        new = move.home(1).service.services.queue_rooms.placement
        late = AskSend(
            queue=QUEUE, topic=QUEUE, partition=1, messages=(Outgoing(_record("late"), b"late"),), routed_in=1
        )
        assert (await new.send_at_home(late)).sent[0].partition == 0, "sent on in an earlier change"
        old = move.home(0).service.services.queue_rooms.placement
        for era in (0, 1, 2):
            with pytest.raises(HeadraceError) as refused:
                await old.send_to_partition(QUEUE, 0, _record("later"), era)
            assert refused.value.kind is ErrorKind.NOT_COORDINATOR
        assert await move.in_order() == ["first", "late"]

    Stage(3, play).perform()


def test_a_client_does_not_notice_that_its_message_was_refused_while_the_queue_changed() -> None:
    """Q11: nothing was written, so the door asks again, with the newest spec; not for ever."""

    async def play(stage: Stage) -> None:
        move = Move(stage)
        await move.make()
        home = move.home(0)
        placing = home.service.services.queue_rooms.placement
        send_at_home, refusals = placing.send_at_home, 3

        async def changing(ask: AskSend) -> Any:
            nonlocal refusals
            refusals -= 1
            if refusals >= 0:
                raise HeadraceError(ErrorKind.NOT_COORDINATOR, "the queue has changed meanwhile")
            return await send_at_home(ask)

        placing.send_at_home = changing
        here = SqsClient([home.address], stage.dice.fork("x"))
        message: dict[str, Any] = {"QueueUrl": QUEUE, "MessageGroupId": MOVES}
        assert _partition(await here.ask("SendMessage", MessageBody="first", **message)) == 0
        refusals = 1 << 60
        with pytest.raises(Unknown):
            await here.ask("SendMessage", MessageBody="second", **message)
        refusals = 0
        assert await move.in_order() == ["first"]

    Stage(6, play).perform()


def test_a_change_is_ended_only_by_who_looked_at_it() -> None:
    """A keeper that was away for a while would end, or begin, another change than the one it asked about."""

    async def play(stage: Stage) -> None:
        move = Move(stage)
        await move.make()
        await move.begin()
        rooms = move.rooms()[0]
        seen = rooms.catalog.spec(QUEUE)
        await move.change(active=1, moving_from=0, era=2)
        await move.begin()
        with pytest.raises(HeadraceError) as refused:
            await rooms.catalog.change(seen.name, seen=seen, moving_from=0, moved_ms=0, era=seen.era + 1)
        assert refused.value.kind is ErrorKind.CONFLICT
        assert rooms.catalog.spec(QUEUE).moving_from == 1

    Stage(4, play).perform()


def test_what_stayed_during_a_change_is_not_sent_again_unnoticed_after_it() -> None:
    """The deduplication window counts from when the last group moved, not from the beginning of the change."""

    async def play(stage: Stage) -> None:
        move = Move(stage)
        await move.make(config={"dedup_window_ms": 3_000})
        assert await move.send("held") == 0
        held = (await move.receive())[0]
        await move.begin()
        await asyncio.sleep(5.0)
        assert await move.send("once") == 0, "behind the one that is there"
        sent = asyncio.get_running_loop().time()
        await move.delete(held)
        await move.delete((await move.receive())[0])
        while asyncio.get_running_loop().time() < sent + 2.5:
            assert await move.send("once") == 0, "a duplicate, and answered as the first one"
            await asyncio.sleep(0.2)
        await until(lambda: not any(each.catalog.spec(QUEUE).moving_from for each in move.rooms()))
        assert asyncio.get_running_loop().time() >= sent + 3.0
        assert await move.send("later") == 1

    Stage(5, play).perform()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_backlog_that_the_engine_has_no_room_for_is_looked_through(is_there: bool) -> None:
    async def play(stage: Stage) -> None:
        move = Move(stage)
        await move.make(config={"window": 2})
        for number in range(4):
            await move.send(f"{number}", STAYS)
        if is_there:
            await move.send("there")
        await move.begin()
        source = Source(QUEUE, QUEUE, 0)
        counts = (
            move.home(0)
            .service.services.queue_rooms.shards.hosted[TopicPartition(QUEUE, 0)]
            .machine.counts(source)
        )
        assert counts.indexed_to < counts.end_offset, "not everything has been looked at"
        assert await move.send("next") == (0 if is_there else 1)
        for _ in range(2):
            await move.send("more", STAYS)
            assert await move.send("last") == (0 if is_there else 1)

    Stage(6, play).perform()
