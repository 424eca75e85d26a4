"""Driver: the way to another broker's queues, and the port behind it."""

from __future__ import annotations

from typing import Protocol

from headrace.broker.queueing.routing.lives import OTHER_LIFE, Lives
from headrace.broker.queueing.routing.peer_calls import A, PeerQuestion
from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.core.errors import ErrorKind, HeadraceError, Unknown

ASK_S = 10.0


class PeerBrokers(Protocol):
    """Port: how another broker is asked."""

    async def ask(self, broker_id: int, question: PeerQuestion[A], timeout_s: float) -> A:
        """Raises HeadraceError: what the other said, NOT_COORDINATOR when it was not reached, REQUEST_TIMED_OUT when
        nobody knows."""
        ...


class PeerCaller:
    def __init__(self, node_id: int, lives: Lives) -> None:
        self._node_id = node_id
        self._lives = lives
        self.peers: PeerBrokers | None = None
        """None: this broker is alone, and what is not here is nowhere."""

    async def ask(self, broker_id: int, question: PeerQuestion[A], timeout_s: float = ASK_S) -> A:
        """Raises Unknown when the other knows another life of what is asked about: nothing has happened, and our news may be the
        older ones."""
        if self.peers is None or broker_id == self._node_id:
            raise WrongBroker(broker_id, question.queue)
        if broker_id < 0:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"nobody leads {question.queue} right now")
        try:
            return await self.peers.ask(broker_id, self._lives.named(question), timeout_s)
        except HeadraceError as refusal:
            if refusal.kind is OTHER_LIFE:
                raise Unknown(refusal.kind, refusal.detail) from refusal
            raise
