"""Driver: messages from one queue to another: written there and done here, in one transaction (R60).

Dead letters and move tasks go this way. If the transaction aborts, or nobody knows, the shard's memory is thrown away and
loaded again from what was committed, so a message is in exactly one of the two queues whatever happens in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.partition import Partition
from headrace.broker.queueing.hosting import Hosted
from headrace.broker.txn_client import TransactionClient
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.records.build import Record, build_batch

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

log = logging.getLogger(__name__)

SETTLE_S = 0.1


class NotMoved(HeadraceError):
    """Nothing happened: the messages are where they were."""


class Transfers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clients: dict[Hosted, TransactionClient] = {}
        self._locks: dict[Hosted, asyncio.Lock] = {}

    async def transfer(
        self,
        hosted: Hosted,
        letters: Mapping[TopicPartition, Sequence[Record]],
        make_command: Callable[[int], Any],
    ) -> Any:
        """Write `letters` and journal what `make_command` decides, both or neither; the command's answer.

        Raises NotMoved when nothing happened, and HeadraceError when only the shard's next load knows.
        """
        lock = self._locks.setdefault(hosted, asyncio.Lock())
        async with lock:
            try:
                client = await self._written(hosted, letters)
            except HeadraceError as problem:
                await self._give_up(hosted)
                raise NotMoved(problem.kind, problem.detail) from problem
            try:
                answer = await hosted.shard.submit_as((client.producer_id, client.epoch), make_command)
                await client.end(commit=True)
            except HeadraceError as problem:
                # Memory says moved, and the log may not: only a reload knows.
                log.warning("%s: a move is in doubt, loading again: %s", hosted.data.tp, problem.detail)
                self._clients.pop(hosted, None)
                hosted.shard.reload(ErrorKind.NOT_COORDINATOR)
                raise
        return answer

    async def _written(
        self, hosted: Hosted, letters: Mapping[TopicPartition, Sequence[Record]]
    ) -> TransactionClient:
        client = await self._client(hosted)
        await client.add([*letters, hosted.shard.partition.tp])
        for target, records in letters.items():
            if records:
                data = build_batch(
                    records,
                    wall_ms=self._broker.runtime.clock.wall_ms(),
                    producer_id=client.producer_id,
                    producer_epoch=client.epoch,
                    base_sequence=client.next_sequence(target, len(records)),
                    transactional=True,
                )
                await client.produce(target, bytearray(data))
        return client

    async def settle(self, journal: Partition) -> None:
        """A life that died in the middle of a move left its transaction open: fence it, and wait for its marker."""
        while journal.is_leader and journal.log.first_unstable_offset is not None:
            try:
                await TransactionClient(self._broker, transactional_id(journal.tp)).begin()
            except HeadraceError as problem:
                log.info("%s: the open move can't be settled yet: %s", journal.tp, problem.detail)
            await asyncio.sleep(SETTLE_S)

    def forget(self, hosted: Hosted) -> None:
        self._clients.pop(hosted, None)
        self._locks.pop(hosted, None)

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


def transactional_id(journal: TopicPartition) -> str:
    return f"headrace-dead-letters/{journal}"
