"""Clients that delete what they have made and make it again under its name, all through a run's faults (F1).

Whatever a group has committed, or a queue holds, belongs to one life of its topic. A life is the id that the coordinator has
now, which the clients look up there: requests whose answer never came may end one life and begin another late.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from cluster_client import CALL_S, GIVE_UP_S, GROUP, ClusterClient, Gone, Violation, _now
from queue_clients import Refused, SqsClient, Unknown

from headrace.broker.peer import PeerLost
from headrace.cluster import keys
from headrace.coordinator.store import RevisionedStore
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.testing.dice import Dice
from headrace.testing.sim_node import SimNode
from headrace.wire.api import ApiKey
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

AGAIN = "again"
LIVES = 1_000_000
"""An offset says in which life it was committed."""
CONFIGS = {"min.insync.replicas": "2", "retention.ms": "-1"}


class Recreator:
    """Commits offsets for a topic, asks for them again, and now and then makes the topic anew: what is found was
    committed in this life, and everything that was acknowledged in it is (R53)."""

    def __init__(
        self,
        client: ClusterClient,
        dice: Dice,
        store: RevisionedStore,
        nodes: Mapping[int, SimNode],
        replicas: int,
    ) -> None:
        self._client = client
        self._dice = dice
        self._store = store
        self._nodes = nodes
        self._replicas = replicas
        self._lives: list[str] = []
        self.acknowledged = -1
        self._next = 0
        self._open: set[int] = set()
        """Commits without an answer. They may come late, and then into any life: they name the topic by its name."""

    @property
    def lives(self) -> int:
        return len(self._lives)

    async def run(self, until: Callable[[], bool], pause_s: float) -> None:
        while not until():
            try:
                if self._life() is None:
                    await self._client.create_topic(1, self._replicas, CONFIGS)
                elif self._dice.chance(0.1):
                    await self.delete()
                elif self._dice.chance(0.6):
                    await self.commit()
                else:
                    await self.look()
            except Gone:
                pass
            await asyncio.sleep(self._dice.exponential(pause_s))

    def _life(self) -> str | None:
        item = self._store.get(keys.topic(AGAIN))
        topic_id = None if item is None or item.value is None else str(json.loads(item.value)["id"])
        if topic_id is not None and (not self._lives or self._lives[-1] != topic_id):
            self._lives.append(topic_id)
            self.acknowledged, self._next = -1, 0
        return topic_id

    def _known_everywhere(self, life: str) -> bool:
        """A coordinator that has not heard of this life takes a commit for one to the last (decision 0019)."""
        for node in self._nodes.values():
            broker = getattr(node.service, "broker", None)
            topic = None if broker is None else broker.image.topic(AGAIN)
            if broker is not None and node.is_running and (topic is None or topic.state.id != life):
                return False
        return True

    async def delete(self) -> None:
        life = self._life()
        if life is not None:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(None, bytes.fromhex(life))], timeout_ms=5_000
            )
            await self._client.ask_anyone(ApiKey.DELETE_TOPICS, 6, request)

    async def commit(self) -> None:
        life = self._life()
        if life is None or not self._known_everywhere(life):
            return
        self._next += 1
        offset = len(self._lives) * LIVES + self._next
        rows = [OffsetCommitRequestPartition(0, offset, -1, "")]
        request = OffsetCommitRequest(
            GROUP, -1, "", None, -1, [OffsetCommitRequestTopic(AGAIN, ZERO_UUID, rows)]
        )
        self._open.add(offset)
        if await self._committed(request) and self._life() == life:  # else: which life has it?
            self._open.discard(offset)
            self.acknowledged = max(self.acknowledged, offset)

    async def _committed(self, request: OffsetCommitRequest) -> bool:
        """Asked once: a second attempt would leave the first one without an answer."""
        where = await self._client.ask_anyone(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(GROUP, 0))
        if where.error_code:
            return False
        try:
            connection = await self._client.connection((where.host, where.port))
            answer = await connection.call(ApiKey.OFFSET_COMMIT, 7, request, CALL_S)
        except PeerLost:
            raise Gone from None
        error = ErrorKind(answer.topics[0].partitions[0].error_code)
        is_expected = error.info.retriable or error is ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
        if error is not ErrorKind.NONE and not is_expected:
            raise Violation(f"a commit of offsets was answered with {error.name}")
        return error is ErrorKind.NONE

    async def look(self) -> None:
        life, acknowledged = self._life(), self.acknowledged
        if life is None or not self._known_everywhere(life):
            return
        request = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(AGAIN, [0])], [], False)
        answer, error = await self._client.ask_coordinator(
            GROUP, 0, ApiKey.OFFSET_FETCH, 7, request,
            lambda got: got.error_code or got.topics[0].partitions[0].error_code, _now() + GIVE_UP_S,
        )  # fmt: skip
        if self._life() != life:
            return
        if error is not ErrorKind.NONE:
            raise Violation(f"a question for offsets was answered with {error.name}")
        found = answer.topics[0].partitions[0].committed_offset
        is_empty = found == acknowledged == -1
        is_ours = found // LIVES == len(self._lives) and found >= acknowledged
        if not (is_empty or is_ours or found in self._open):
            raise Violation(
                f"F1: {found} is there in life {len(self._lives)} of {AGAIN}, {acknowledged} was committed in it"
            )


class Phoenix:
    """A queue that is deleted and made again, with the same deduplication ids in each life."""

    def __init__(
        self,
        queue: str,
        client: SqsClient,
        dice: Dice,
        store: RevisionedStore,
    ) -> None:
        self._queue = queue
        self._client = client
        self._dice = dice
        self._store = store
        self._is_fifo = queue.endswith(".fifo")
        self._lives: list[str] = []
        self._sent = 0
        self._due: set[str] = set()
        """Acknowledged in this life and not received yet."""
        self._late: set[str] = set()
        """Sends without an answer: they may come into any later life."""

    @property
    def lives(self) -> int:
        return len(self._lives)

    async def run(self, until: Callable[[], bool], pause_s: float) -> None:
        while not until():
            try:
                if self._life() is None:
                    attributes = {"FifoQueue": "true"} if self._is_fifo else {}
                    await self._client.ask("CreateQueue", QueueName=self._queue, Attributes=attributes)
                elif self._dice.chance(0.1):
                    await self._client.ask("DeleteQueue", QueueUrl=self._queue)
                elif self._dice.chance(0.5):
                    await self._send()
                else:
                    await self._receive()
            except (Refused, Unknown):
                pass
            await asyncio.sleep(self._dice.exponential(pause_s))

    def _life(self) -> str | None:
        item = self._store.get(keys.opaque("queues", self._queue))
        queue_id = None if item is None or item.value is None else str(json.loads(item.value)["id"])
        if queue_id is not None and (not self._lives or self._lives[-1] != queue_id):
            self._lives.append(queue_id)
            self._sent = 0
            self._due.clear()
        return queue_id

    async def _send(self) -> None:
        life, number = self._life(), self._sent
        self._sent += 1
        body = f"{len(self._lives)}.{number}"
        self._late.add(body)
        options: dict[str, Any] = {}
        if self._is_fifo:
            options = {"MessageGroupId": "g", "MessageDeduplicationId": str(number)}
        await self._client.ask("SendMessage", QueueUrl=self._queue, MessageBody=body, **options)
        if self._life() == life and not any(late.endswith(f".{number}") for late in self._late - {body}):
            # A late send of an earlier life with the same deduplication id may have come first.
            self._due.add(body)
            self._late.discard(body)

    async def _receive(self) -> int:
        life = self._life()
        answer = await self._client.ask(
            "ReceiveMessage", QueueUrl=self._queue, MaxNumberOfMessages=10, VisibilityTimeout=600
        )
        found = answer.get("Messages", ())
        if self._life() != life:
            return len(found)
        for row in found:
            body = row["Body"]
            if int(body.partition(".")[0]) != len(self._lives) and body not in self._late:
                raise Violation(f"F1: {body} was delivered in life {len(self._lives)} of {self._queue}")
            self._due.discard(body)
            await self._client.ask("DeleteMessage", QueueUrl=self._queue, ReceiptHandle=row["ReceiptHandle"])
        return len(found)

    async def end(self, seconds: float) -> None:
        """Everything is well again: what this life acknowledged comes out of it."""
        deadline = _now() + seconds
        while self._life() is not None and self._due:
            try:
                await self._receive()
            except (Refused, Unknown):
                pass
            if _now() > deadline:
                raise Violation(f"F1: life {len(self._lives)} of {self._queue} has lost {sorted(self._due)}")
            await asyncio.sleep(0.5)
