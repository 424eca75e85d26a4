"""Driver: moving a message to the dead letters: written there and done here, in one transaction (R60).

If the transaction aborts, or nobody knows, the shard's memory is thrown away and loaded again from what was committed, so
a message is in exactly one of the two queues whatever happens in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from headrace.broker.partition import Partition
from headrace.broker.queueing import names
from headrace.broker.queueing.hosting import Hosted
from headrace.broker.txn_client import TransactionClient
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.queues.commands import Moved, MoveFailed, MoveToDeadLetter, Source
from headrace.records.build import Record, build_batch

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

log = logging.getLogger(__name__)

RETRY_MS = 5_000
SETTLE_S = 0.1
MAX_AT_ONCE = 100


class DeadLetters:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[Hosted, deque[MoveToDeadLetter]] = {}
        self._clients: dict[Hosted, TransactionClient] = {}

    def move(self, hosted: Hosted, effect: MoveToDeadLetter) -> None:
        waiting = self._waiting.get(hosted)
        if waiting is not None:
            waiting.append(effect)
            return
        self._waiting[hosted] = deque([effect])
        self._broker.runtime.spawn(self._work(hosted), f"dead letters of {hosted.data.tp}")

    async def _work(self, hosted: Hosted) -> None:
        waiting = self._waiting[hosted]
        try:
            while waiting and hosted.ready:
                first = waiting[0]
                batch = [first]
                waiting.popleft()
                while waiting and len(batch) < MAX_AT_ONCE and _same_way(waiting[0], first):
                    batch.append(waiting.popleft())
                await self._move(hosted, first.source, first.dead_letter, batch)
        finally:
            del self._waiting[hosted]
            if not hosted.ready:
                self._clients.pop(hosted, None)

    async def _move(
        self, hosted: Hosted, source: Source, dead_letter: str, batch: list[MoveToDeadLetter]
    ) -> None:
        offsets = tuple(effect.offset for effect in batch)
        try:
            client = await self._client(hosted)
            target = self._target(dead_letter)
            await client.add([target, hosted.shard.partition.tp])
            records = hosted.payloads.get(offsets)
            letters = [
                self._letter(records[effect.offset], effect) for effect in batch if effect.offset in records
            ]
            if letters:
                data = build_batch(
                    letters,
                    wall_ms=self._broker.runtime.clock.wall_ms(),
                    producer_id=client.producer_id,
                    producer_epoch=client.epoch,
                    base_sequence=client.next_sequence(target, len(letters)),
                    transactional=True,
                )
                await client.produce(target, bytearray(data))
        except HeadraceError as problem:
            log.warning("%s: %d dead letters wait: %s", source, len(offsets), problem.detail)
            await self._give_up(hosted)
            hosted.shard.tell(MoveFailed(source, offsets, RETRY_MS))
            return
        try:
            await hosted.shard.submit_as(
                (client.producer_id, client.epoch), lambda waiter: Moved(source, offsets, waiter=waiter)
            )
            await client.end(commit=True)
        except HeadraceError as problem:
            # Memory says moved, and the log may not: only a reload knows.
            log.warning("%s: the move is in doubt, loading again: %s", source, problem.detail)
            self._clients.pop(hosted, None)
            hosted.shard.reload(ErrorKind.NOT_COORDINATOR)

    async def settle(self, journal: Partition) -> None:
        """A life that died in the middle of a move left its transaction open: fence it, and wait for its marker."""
        while journal.is_leader and journal.log.first_unstable_offset is not None:
            try:
                await TransactionClient(self._broker, transactional_id(journal.tp)).begin()
            except HeadraceError as problem:
                log.info("%s: the open move can't be settled yet: %s", journal.tp, problem.detail)
            await asyncio.sleep(SETTLE_S)

    async def _client(self, hosted: Hosted) -> TransactionClient:
        client = self._clients.get(hosted)
        if client is None:
            client = TransactionClient(self._broker, transactional_id(hosted.shard.partition.tp))
            await client.begin()
            self._clients[hosted] = client
        return client

    async def _give_up(self, hosted: Hosted) -> None:
        """Abort what is open; the next move begins anew, which settles it in any case."""
        client = self._clients.pop(hosted, None)
        if client is not None:
            try:
                await client.end(commit=False)
            except HeadraceError:
                pass

    def _target(self, dead_letter: str) -> TopicPartition:
        spec = self._broker.queues.find_spec(dead_letter)
        topic = spec.topics[0] if spec is not None else dead_letter
        if self._broker.image.topic(topic) is None:
            raise HeadraceError(
                ErrorKind.QUEUE_DOES_NOT_EXIST, f"the dead-letter queue {dead_letter} does not exist"
            )
        return TopicPartition(topic, self._broker.queues.choose_partition(topic, None))

    def _letter(self, record: Record, effect: MoveToDeadLetter) -> Record:
        """The message as it was, and why it is here."""
        kept = tuple((name, value) for name, value in record.headers if not name.startswith("headrace-dead-"))
        why = (
            (names.DEAD_REASON, effect.reason.name.lower().encode()),
            (names.DEAD_SOURCE, effect.source.queue.encode()),
            (names.DEAD_DELIVERIES, str(effect.deliveries).encode()),
            *(((names.DEAD_DETAIL, effect.detail.encode()),) if effect.detail else ()),
        )
        # Its delay has passed; it must not rest again among the dead.
        ours = (names.DELAY_MS, names.DELIVER_AT, names.DELAY_LEVEL)
        kept = tuple(header for header in kept if header[0] not in ours)
        return Record(record.key, record.value, kept + why, record.timestamp)


def _same_way(one: MoveToDeadLetter, other: MoveToDeadLetter) -> bool:
    return (one.source, one.dead_letter) == (other.source, other.dead_letter)


def transactional_id(journal: TopicPartition) -> str:
    return f"headrace-dead-letters/{journal}"
