"""Door: from one broker's queue desk to another's, over HTTP, under the cluster's secret.

    POST /internal/queue-desk      a question as msgpack (broker/queueing/questions.py)

The MAC covers the path and the body, so that nobody without the secret can ask, and nobody can pass a question off as another.
"""

from __future__ import annotations

import hmac
from typing import Any

from headrace.broker.broker import Broker
from headrace.broker.queueing.questions import (
    AnyQuestion,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    encode_refusal,
)
from headrace.coordinator.h1_client import H1Client, HttpFailure, Origin
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MIB
from headrace.http.messages import Request, Response
from headrace.http.router import Router

PATH = "/internal/queue-desk"
MARK = b"x-headrace-desk"
TYPE = "application/vnd.headrace.msgpack"
MAX_BODY_BYTES = 16 * MIB
OVERHEAD_S = 2.0
"""Beyond what the question itself may wait."""


class PeerDeskDoor:
    """broker.queueing.anywhere.PeerDesks, and the door at the other end."""

    def __init__(self, broker: Broker, secret: bytes) -> None:
        self._broker = broker
        self._secret = secret
        self._client = H1Client()

    def mount(self, router: Router) -> None:
        router.add("POST", PATH, self._answer, max_body_bytes=MAX_BODY_BYTES, any_body=True)

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, PATH.encode() + b"\n" + body, "sha256").hex().encode()

    async def ask(self, broker_id: int, question: AnyQuestion, timeout_s: float) -> Any:
        node = self._broker.image.broker(broker_id)
        if node is None or not node.live:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"broker {broker_id} is away")
        body = encode_question(question)
        registration = node.registration
        try:
            got = await self._client.request(
                Origin(registration.http_host, registration.http_port),
                "POST",
                PATH,
                headers={MARK.decode(): self._mac(body).decode(), "content-type": TYPE},
                body=body,
                timeout_s=timeout_s + OVERHEAD_S,
            )
        except HttpFailure as problem:
            # What was sent may have happened: the client is told so, and decides.
            kind = ErrorKind.REQUEST_TIMED_OUT if problem.sent else ErrorKind.NOT_COORDINATOR
            raise HeadraceError(kind, f"broker {broker_id}: {problem}") from None
        if got.status != 200:
            raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT, f"broker {broker_id} answered {got.status}")
        return decode_answer(question, got.body)

    async def _answer(self, request: Request) -> Response:
        body = bytes(request.body)
        if not hmac.compare_digest(request.headers.get(MARK, b""), self._mac(body)):
            raise HeadraceError(ErrorKind.ACCESS_DENIED, "this is for brokers of the same cluster")
        try:
            answer = await self._broker.queues.anywhere.answer(decode_question(body))
        except HeadraceError as problem:
            return Response(encode_refusal(problem), 200, TYPE)
        return Response(encode_answer(answer), 200, TYPE)

    async def close(self) -> None:
        await self._client.close()
