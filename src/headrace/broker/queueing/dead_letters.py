"""Driver: moving a message to the dead letters, as the engine asks for it (R60).

What one load asks for is moved for that load: the next one asks again for whatever was not moved (F6).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from headrace.broker.load import Load
from headrace.broker.queueing import names
from headrace.broker.queueing.hosting import Hosted
from headrace.broker.queueing.transfers import NotMoved, Transfers
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.queues.commands import Moved, MoveFailed, MoveToDeadLetter
from headrace.records.build import Record

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

log = logging.getLogger(__name__)

RETRY_MS = 5_000
MAX_AT_ONCE = 100


class DeadLetters:
    def __init__(self, broker: Broker, transfers: Transfers) -> None:
        self._broker = broker
        self._transfers = transfers
        self._waiting: WeakKeyDictionary[Load, deque[MoveToDeadLetter]] = WeakKeyDictionary()
        """There while somebody works on it."""

    def move(self, hosted: Hosted, load: Load, effect: MoveToDeadLetter) -> None:
        waiting = self._waiting.get(load)
        if waiting is not None:
            waiting.append(effect)
            return
        waiting = self._waiting[load] = deque([effect])
        load.spawn(self._work(hosted, load, waiting), f"dead letters of {hosted.data.tp}")

    async def _work(self, hosted: Hosted, load: Load, waiting: deque[MoveToDeadLetter]) -> None:
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

    async def _move(self, hosted: Hosted, load: Load, batch: list[MoveToDeadLetter]) -> None:
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
                    letter = self._letter(records[effect.offset], effect)
                    letters.setdefault(choose(letter), []).append(letter)
            await self._transfers.transfer(
                load, letters, lambda waiter: Moved(source, offsets, waiter=waiter)
            )
        except NotMoved as problem:
            log.warning("%s: %d dead letters wait: %s", source, len(offsets), problem.detail)
            load.tell(MoveFailed(source, offsets, RETRY_MS))
        except HeadraceError:
            # The shard loads again and asks again for what was not moved.
            return

    def _chooser(self, dead_letter: str) -> Callable[[Record], TopicPartition]:
        """Where each letter goes: those of one batch to one partition, but those of a message group to the group's."""
        placing = self._broker.queues.placing
        spec = self._broker.queues.find_spec(dead_letter)
        topic = spec.topics[0] if spec is not None else dead_letter
        if self._broker.image.topic(topic) is None:
            raise NotMoved(
                ErrorKind.QUEUE_DOES_NOT_EXIST, f"the dead-letter queue {dead_letter} does not exist"
            )
        if spec is None or not spec.queue_config.fifo:
            target = TopicPartition(topic, placing.choose_partition(topic, None))
            return lambda letter: target

        def choose(letter: Record) -> TopicPartition:
            try:
                return placing.choose_for_moved(spec, letter)
            except HeadraceError as problem:
                raise NotMoved(problem.kind, problem.detail) from None

        return choose

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
