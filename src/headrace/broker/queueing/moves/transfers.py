"""Driver: messages from one queue to another: written there and done here, in one transaction (R60).

Dead letters and move tasks go this way. If the transaction aborts, or nobody knows, the shard's memory is thrown away and
loaded again from what was committed, so a message is in exactly one of the two queues whatever happens in between. A
transfer is made for one load of the shard, with a producer of its own: a load that has ended can not commit anything, and
before the next one loads what it left open is settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from headrace.broker.hosts import QueueHost
from headrace.broker.load import CommandRefused
from headrace.broker.partition import Partition
from headrace.broker.queueing.local.hosted import QueueLoad
from headrace.broker.runtime import happens
from headrace.broker.txn_client import TransactionClient
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.plan import Command
from headrace.queues.commands import Verdicts
from headrace.records.build import Record, build_batch

log = logging.getLogger(__name__)

SETTLE_S = 0.2
"""How long a journal's open move may take to end before somebody asks again."""


class NotMoved(HeadraceError):
    """Nothing happened: the messages are where they were."""


class _Mover:
    """Of one load: its producer, and one transfer at a time."""

    def __init__(self) -> None:
        self.client: TransactionClient | None = None
        self.lock = asyncio.Lock()


class Transfers:
    def __init__(self, host: QueueHost) -> None:
        self._host = host
        self._movers: WeakKeyDictionary[QueueLoad, _Mover] = WeakKeyDictionary()

    async def transfer(
        self,
        load: QueueLoad,
        letters: Mapping[TopicPartition, Sequence[Record]],
        command: Command[Verdicts],
    ) -> None:
        """Write `letters` and journal what the command decides, both or neither.

        Raises NotMoved when nothing happened, and HeadraceError when only the shard's next load knows.
        """
        mover = self._movers.setdefault(load, _Mover())
        async with mover.lock:
            try:
                client = await self._written(load, mover, letters)
            except HeadraceError as problem:
                await self._give_up(mover)
                raise NotMoved(problem.kind, problem.detail) from problem
            try:
                # For each message whether this load holds it no more: a lease ran out, or was an earlier load's.
                refused = await load.submit(command, (client.producer_id, client.epoch))
                if not any(refused):
                    await client.end(commit=True)
                    return
            except CommandRefused:
                refused = ()  # nothing was decided
            except HeadraceError as problem:
                # Memory says moved, and the log may not: only a reload knows.
                log.warning(
                    "%s: a move is in doubt, loading again: %s", load.shard.partition.tp, problem.detail
                )
                mover.client = None
                load.distrust(ErrorKind.NOT_COORDINATOR)
                raise
            await self._give_up(mover)
            if not all(refused):
                load.distrust(ErrorKind.NOT_COORDINATOR)  # memory says that some are moved
            raise NotMoved(ErrorKind.NOT_COORDINATOR, "somebody else has some of these messages by now")

    async def _written(
        self, load: QueueLoad, mover: _Mover, letters: Mapping[TopicPartition, Sequence[Record]]
    ) -> TransactionClient:
        journal = load.shard.partition.tp
        client = mover.client
        if client is None:
            load.check()
            client = self._host.transaction(transactional_id(journal))
            await client.begin()
            mover.client = client
        await client.add([*letters, journal])
        for target, records in letters.items():
            if records:
                data = build_batch(
                    records,
                    wall_ms=self._host.runtime.clock.wall_ms(),
                    producer_id=client.producer_id,
                    producer_epoch=client.epoch,
                    base_sequence=client.next_sequence(target, len(records)),
                    transactional=True,
                )
                await client.produce(target, bytearray(data))
        load.check()
        return client

    async def marked(self, load: QueueLoad) -> None:
        """Wait until what was moved last can be read where it is now."""
        await self._host.transaction(transactional_id(load.shard.partition.tp)).marked()

    async def settle(self, journal: Partition) -> None:
        """A life that died in the middle of a move left its transaction open: fence it, and wait for its marker."""
        grown = asyncio.Event()

        def heard(high_watermark: int) -> None:
            grown.set()

        journal.on_commit.append(heard)
        try:
            while journal.is_leader and journal.log.first_unstable_offset is not None:
                grown.clear()
                try:
                    await self._host.transaction(transactional_id(journal.tp)).begin()
                except HeadraceError as problem:
                    log.info("%s: the open move can't be settled yet: %s", journal.tp, problem.detail)
                if journal.log.first_unstable_offset is not None:
                    await happens(grown, SETTLE_S)
        finally:
            journal.on_commit.remove(heard)

    async def _give_up(self, mover: _Mover) -> None:
        """Abort what is open; the next move begins anew, which settles it in any case."""
        client, mover.client = mover.client, None
        if client is not None:
            try:
                await client.end(commit=False)
            except HeadraceError:
                pass


def transactional_id(journal: TopicPartition) -> str:
    return f"headrace-dead-letters/{journal}"
