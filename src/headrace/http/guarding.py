"""Door: a guard before each HTTP handler, where there is one: who may not is told which right is missing (A45)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.core.principals import ANONYMOUS
from headrace.http.messages import Answer, Handler, Request
from headrace.http.router import Guarded
from headrace.security.guard import Guard
from headrace.security.rights import Rights


def guarding(guard: Guard) -> Guarded:
    def guarded(rights: Rights, handler: Handler) -> Handler:
        async def judged(request: Request) -> Answer:
            caller = ANONYMOUS if request.sender is None else request.sender
            guard.check_http(rights, request.params, _body(request), caller, request.peer.host)
            answer = handler(request)
            return answer if isinstance(answer, Answer) else await answer

        return judged

    return guarded


def _body(request: Request) -> Mapping[str, object]:
    """What is no object names nothing; the handler says what is wrong with it."""
    try:
        body = msgspec.json.decode(request.body) if request.body else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return body if isinstance(body, dict) else {}
