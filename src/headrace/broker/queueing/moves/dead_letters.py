"""Driver: moving a message to the dead letters, as the engine asks for it (R60).

What one load asks for is moved for that load: the next one asks again for whatever was not moved (F6).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakSet

from headrace.broker.hosts import QueueHost
from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.local.delayed import number
from headrace.broker.queueing.local.hosted import Hosted, QueueLoad
from headrace.broker.queueing.moves.transfers import NotMoved, Transfers
from headrace.broker.queueing.placement.placement import Placement
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.queues.commands import DeadLettersWritten, MoveFailed, MoveToDeadLetter, Source
from headrace.queues.shard import QueueShard
from headrace.records.build import Record

log = logging.getLogger(__name__)

RETRY_MS = 5_000
MAX_AT_ONCE = 100
PATIENCE_S = 10.0
"""How long an empty receive waits for moves that are under way."""


class DeadLetters:
    def __init__(
        self, host: QueueHost, catalog: QueueCatalog, placement: Placement, transfers: Transfers
    ) -> None:
        self._image = host.image
        self._catalog = catalog
        self._placement = placement
        self._transfers = transfers
        self._waiting: WeakKeyDictionary[QueueLoad, deque[MoveToDeadLetter]] = WeakKeyDictionary()
        """There while somebody works on it."""
        self._unmarked: WeakSet[QueueLoad] = WeakSet()
        """Moved, and perhaps not to be read yet where it is now."""
        self._progress: WeakKeyDictionary[QueueLoad, asyncio.Event] = WeakKeyDictionary()
        """Set after the next batch, for those who wait until all is moved."""

    def move(self, hosted: Hosted, load: QueueLoad, effect: MoveToDeadLetter) -> None:
        waiting = self._waiting.get(load)
        if waiting is not None:
            waiting.append(effect)
            return
        waiting = self._waiting[load] = deque([effect])
        load.spawn(self._work(hosted, load, waiting), f"dead letters of {hosted.data.tp}")

    async def _work(self, hosted: Hosted, load: QueueLoad, waiting: deque[MoveToDeadLetter]) -> None:
        try:
            while waiting and not load.ended:
                first = waiting[0]
                batch = [first]
                waiting.popleft()
                while waiting and len(batch) < MAX_AT_ONCE and _same_way(waiting[0], first):
                    batch.append(waiting.popleft())
                await self._move(hosted, load, batch)
        finally:
            del self._waiting[load]
            self._tell_progress(load)

    async def _move(self, hosted: Hosted, load: QueueLoad, batch: list[MoveToDeadLetter]) -> None:
        source, dead_letter = batch[0].source, batch[0].dead_letter
        offsets = tuple(effect.offset for effect in batch)
        try:
            choose = self._chooser(dead_letter)
            if max(offsets) >= hosted.data.last_stable_offset:
                # A new leader may know from the journal what it can not read yet (R12): that is no gap.
                raise NotMoved(ErrorKind.LEADER_NOT_AVAILABLE, f"{hosted.data.tp} can not be read so far yet")
            records = hosted.payloads.get(offsets)
            letters: dict[TopicPartition, list[Record]] = {}
            for effect in batch:
                if effect.offset in records:
                    record = records[effect.offset]
                    message_id = names.message_id_of(record, hosted.data.topic_id, source.partition)
                    letter = self._letter(record, effect, message_id)
                    letters.setdefault(choose(letter), []).append(letter)
            await self._transfers.transfer(load, letters, DeadLettersWritten(source, offsets))
            self._unmarked.add(load)
        except NotMoved as problem:
            log.warning("%s: %d dead letters wait: %s", source, len(offsets), problem.detail)
            load.tell(MoveFailed(source, offsets, RETRY_MS))
        except HeadraceError:
            # The shard loads again and asks again for what was not moved.
            return
        finally:
            self._tell_progress(load)

    def _tell_progress(self, load: QueueLoad) -> None:
        progress = self._progress.pop(load, None)
        if progress is not None:
            progress.set()

    async def finished(self, load: QueueLoad, source: Source) -> None:
        """Until what has died is where it goes, or could not go there now: whoever finds a queue empty must find its message
        among the dead letters, and not in neither (F12)."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not load.ended and (load in self._waiting or _is_moving(load, source)):
                    await self._progress.setdefault(load, asyncio.Event()).wait()
                await self._transfers.marked(load)
                if load not in self._waiting:
                    self._unmarked.discard(load)
        except TimeoutError:
            log.info("%s: dead letters take long to be moved", source)
        except HeadraceError as problem:
            log.info("%s: nobody knows whether dead letters are moved: %s", source, problem.detail)

    def is_busy(self, load: QueueLoad, source: Source) -> bool:
        """Whether there is anything to be `finished`."""
        return load in self._waiting or load in self._unmarked or _is_moving(load, source)

    def _chooser(self, dead_letter: str) -> Callable[[Record], TopicPartition]:
        """Where each letter goes: those of one batch to one partition, but those of a message group to the group's."""
        placement = self._placement
        spec = self._catalog.find(dead_letter)
        topic = spec.topics[0] if spec is not None else dead_letter
        if self._image.topic(topic) is None:
            raise NotMoved(
                ErrorKind.QUEUE_DOES_NOT_EXIST, f"the dead-letter queue {dead_letter} does not exist"
            )
        if spec is None or not spec.queue_config.fifo:
            target = TopicPartition(topic, placement.choose_partition(topic, None))
            return lambda letter: target

        def choose(letter: Record) -> TopicPartition:
            try:
                return placement.choose_for_moved(spec, letter)
            except HeadraceError as problem:
                raise NotMoved(problem.kind, problem.detail) from None

        return choose

    def _letter(self, record: Record, effect: MoveToDeadLetter, message_id: str) -> Record:
        """The message as it was, and why it is here."""
        before = max(0, number(names.header(record.headers, names.DEAD_DELIVERIES)) or 0)
        kept = tuple((name, value) for name, value in record.headers if not name.startswith("headrace-dead-"))
        why = (
            (names.DEAD_REASON, effect.reason.name.lower().encode()),
            (names.DEAD_SOURCE, effect.source.queue.encode()),
            (names.DEAD_DELIVERIES, str(before + effect.deliveries).encode()),
            (names.DEAD_ID, message_id.encode()),
            *(((names.DEAD_DETAIL, effect.detail.encode()),) if effect.detail else ()),
        )
        # Its delay has passed; it must not rest again among the dead.
        ours = (names.DELAY_MS, names.DELIVER_AT, names.DELAY_LEVEL)
        kept = tuple(header for header in kept if header[0] not in ours)
        return Record(record.key, record.value, kept + why, record.timestamp)


def _is_moving(load: QueueLoad, source: Source) -> bool:
    machine = load.machine
    return isinstance(machine, QueueShard) and machine.is_moving(source)


def _same_way(one: MoveToDeadLetter, other: MoveToDeadLetter) -> bool:
    return (one.source, one.dead_letter) == (other.source, other.dead_letter)
