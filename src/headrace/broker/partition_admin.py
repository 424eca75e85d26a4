"""Driver: elections, moves and farewells that an administrator asks for. Any broker may carry them out: each is a compared
transaction that names the controller's epoch (R1), and the controller takes a move from there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from headrace.broker.metadata import Decision, Metadata
from headrace.cluster.changes import Change
from headrace.cluster.controller import Standings, elect
from headrace.cluster.election import ElectionType
from headrace.cluster.membership import unregister
from headrace.cluster.reassignment import start, stop
from headrace.cluster.rows import Topic
from headrace.cluster.state import PartitionState
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.plan import Rejected, accepted

log = logging.getLogger(__name__)


class Ongoing(NamedTuple):
    topic: str
    partition: int
    state: PartitionState


class PartitionAdmin:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._image = metadata.image

    async def elect(self, topic: str, number: int, election: ElectionType) -> None:
        """ElectLeaders for one partition. Raises with the refusal; ELECTION_NOT_NEEDED is one."""

        def decide(found: Topic, epoch: int) -> Change | Rejected:
            decided = elect(self._image, found, number, election, epoch)
            if isinstance(decided, Rejected):
                return decided
            change, loss = decided
            if loss is not None:
                log.critical(
                    "%s-%d: unclean election of broker %d on request; acknowledged records may be lost (R27)",
                    topic,
                    number,
                    loss.new_leader,
                )
            return change

        await self._decide(topic, number, decide)

    async def move(self, topic: str, number: int, target: Sequence[int], *, keep_count: bool = False) -> None:
        """Start moving a partition to `target`; it is done when the controller has shrunk it (R35).
        `keep_count`: to as many replicas as it has, or not at all (KIP-860)."""
        await self._decide(
            topic,
            number,
            lambda found, epoch: start(
                self._image,
                found,
                number,
                target,
                epoch,
                Standings(self._image).of(found.config),
                keep_count,
            ),
        )

    async def cancel_move(self, topic: str, number: int) -> None:
        await self._decide(
            topic,
            number,
            lambda found, epoch: stop(
                self._image, found, number, epoch, Standings(self._image).of(found.config)
            ),
        )

    def moves(self) -> list[Ongoing]:
        return [
            Ongoing(topic.name, number, state)
            for topic, number, state in self._image.all_partitions()
            if state.reassigning
        ]

    async def forget_broker(self, broker_id: int) -> None:
        """UnregisterBroker: raises with the refusal."""

        async def decide() -> Change | Rejected:
            await self._metadata.load()
            return unregister(self._image, broker_id, self._controller_epoch())

        await self._settled(decide, "the same broker")

    async def _decide(
        self, topic: str, number: int, decide: Callable[[Topic, int], Change | Rejected]
    ) -> None:
        async def decided() -> Change | Rejected:
            found = self._image.topic(topic)
            if found is None or not 0 <= number < len(found.partitions):
                raise Unknown(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{number}")
            if found.view is not None:
                raise HeadraceError(
                    ErrorKind.INVALID_TOPIC_EXCEPTION,
                    f"{topic} is a view: its partitions are {found.view.source}'s",
                )
            return decide(found, self._controller_epoch())

        await self._settled(decided, "the same partition")

    async def _settled(self, decide: Callable[[], Awaitable[Change | Rejected]], what: str) -> None:
        async def decision() -> Decision[None]:
            return Decision((accepted(await decide()),), None)

        await self._metadata.compare_and_swap(decision, what, contended=ErrorKind.REQUEST_TIMED_OUT)

    def _controller_epoch(self) -> int:
        if self._image.controller is None:
            raise HeadraceError(ErrorKind.NOT_CONTROLLER, "the cluster has no controller right now")
        return self._image.controller.epoch
