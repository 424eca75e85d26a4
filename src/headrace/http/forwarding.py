"""Door: any broker answers any HTTP client (C6): what another broker has to decide is asked there, once.

A forwarded request is sealed (peer_seals.py), so that a peer knows that its sender has checked who asks, and a client can not
claim so. It is never forwarded again: two brokers with different news can't play ball with it. It names what it is about by name, so it
says how new its sender's news are, and is not answered from older ones (F1).
"""

from __future__ import annotations

from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.core.errors import ErrorKind, Unknown
from headrace.http.browsers import CLIENT
from headrace.http.guarding import CLIENT_HOST, CREDENTIAL, PRINCIPAL, named_sender
from headrace.http.messages import Answer, Handler, Request, Response
from headrace.http.peer_requests import NEWS, PeerRequests
from headrace.http.peer_seals import SEAL
from headrace.http.router import Behind, Route, Router

HOST = b"x-headrace-host"
REGION = b"x-headrace-region"
"""That a signature named, which goes no further."""
TIMEOUT_S = 70.0
"""Longer than any long poll."""
_HOP_BY_HOP = (
    b"host",
    b"content-length",
    b"transfer-encoding",
    b"connection",
    b"keep-alive",
    b"upgrade",
    b"expect",
    # Whose page asked was judged by the broker that the browser talks to; here Host is another one.
    b"origin",
    b"sec-fetch-site",
)
_OURS = (SEAL, HOST, REGION, PRINCIPAL, CLIENT_HOST, CREDENTIAL, NEWS)
"""What only brokers say."""
_KEPT_BACK = (
    "content-length", "connection", "date", "content-type", "transfer-encoding", "keep-alive", "server",
    "x-content-type-options", "cross-origin-resource-policy",
)  # fmt: skip


class Forwarder:
    def __init__(self, node_id: int, peers: PeerRequests) -> None:
        self._node_id = node_id
        self._peers = peers

    async def forward(self, request: Request, wrong: WrongBroker, region: str = "") -> Response:
        if request.sender is not None or wrong.broker_id == self._node_id:
            # Two brokers have different news; nothing has happened yet, so ours is read again (F34).
            raise Unknown(ErrorKind.NOT_COORDINATOR, wrong.detail)
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.headers.items()
            if name not in _HOP_BY_HOP and name not in _OURS
        }
        # A27: who asks was found out here; a proof goes no further than the broker it was given to.
        headers |= named_sender(request.access)
        if request.access is not None:
            headers.pop("authorization", None)
        headers.setdefault(CLIENT.decode(), "broker")
        headers[HOST.decode()] = request.header(b"host")
        if region:
            headers[REGION.decode()] = region
        target = request.path + (f"?{request.query_string}" if request.query_string else "")
        got = await self._peers.ask(wrong.broker_id, request.method, target, headers, request.body, TIMEOUT_S)
        passed_on = tuple(header for header in got.headers.items() if header[0] not in _KEPT_BACK)
        return Response(got.body, got.status, got.headers.get("content-type", ""), passed_on)


class ForwardingRouter(Behind):
    """Puts routes into another router, with handlers that ask elsewhere when they have to."""

    def __init__(self, router: Router, forwarder: Forwarder) -> None:
        super().__init__(router, self._forwarding)
        self._forwarder = forwarder

    def _forwarding(self, route: Route) -> Handler:
        handler = route.handler

        async def forwarding(request: Request) -> Answer:
            try:
                answer = handler(request)
                return answer if isinstance(answer, Answer) else await answer
            except WrongBroker as wrong:
                return await self._forwarder.forward(request, wrong)

        return forwarding
