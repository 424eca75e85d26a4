"""Door: from one broker's queues to another's, over HTTP, sealed (peer_seals.py).

POST /internal/queue-desk      a question as msgpack (broker/queueing/routing/peer_calls.py)
"""

from __future__ import annotations

from headrace.broker.latest import Latest
from headrace.broker.queueing.routing.answers import PeerAnswers
from headrace.broker.queueing.routing.lives import Lives
from headrace.broker.queueing.routing.peer_calls import (
    A,
    AnyQuestion,
    AskShareOffset,
    PeerQuestion,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    encode_refusal,
)
from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.broker.share_offsets import ShareOffsets
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MIB
from headrace.http.messages import Request, Response
from headrace.http.peer_requests import PeerRequests
from headrace.http.router import Router
from headrace.security.rights import BROKERS

PATH = "/internal/queue-desk"
TYPE = "application/vnd.headrace.msgpack"
MAX_BODY_BYTES = 16 * MIB
OVERHEAD_S = 2.0
"""Beyond what the question itself may wait."""


class PeerCallDoor:
    """broker.queueing.routing.caller.PeerBrokers, and the door at the other end."""

    def __init__(
        self,
        image: ClusterImage,
        lives: Lives,
        answers: PeerAnswers,
        share_offsets: ShareOffsets,
        latest: Latest,
        peers: PeerRequests,
    ) -> None:
        self._image = image
        self._lives = lives
        self._answers = answers
        self._share_offsets = share_offsets
        self._latest = latest
        self._peers = peers

    def mount(self, router: Router) -> None:
        router.add("POST", PATH, self._answer, BROKERS, max_body_bytes=MAX_BODY_BYTES, any_body=True)

    async def ask(self, broker_id: int, question: PeerQuestion[A], timeout_s: float) -> A:
        node = self._image.broker(broker_id)
        if node is None or not node.live:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"broker {broker_id} is away")
        got = await self._peers.ask(
            broker_id, "POST", PATH, {"content-type": TYPE}, encode_question(question), timeout_s + OVERHEAD_S
        )
        if got.status != 200:
            raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT, f"broker {broker_id} answered {got.status}")
        return decode_answer(question, got.body)

    async def _answer(self, request: Request) -> Response:
        if request.sender is None:
            raise HeadraceError(ErrorKind.ACCESS_DENIED, "this is for brokers of the same cluster")
        try:
            question = decode_question(bytes(request.body))
            # The asker may have heard of a queue, of its next life (F1), or that it lives here, before we have (F34).
            answer = await self._latest.answer(lambda: self._find_answer(question), WrongBroker)
        except HeadraceError as problem:
            return Response(encode_refusal(problem), 200, TYPE)
        return Response(encode_answer(answer), 200, TYPE)

    async def _find_answer(self, question: AnyQuestion) -> object:
        self._lives.check(question)
        if isinstance(question, AskShareOffset):
            return await self._share_offsets.answer(question)
        return await self._answers.answer(question)
