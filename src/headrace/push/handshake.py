"""Driver: whose endpoint is it? Before the first delivery the endpoint has to say back a token that only a request to it carries (X23).

It answers the POST of type `webhook.confirmation` with the token: as the whole body, as {"token": "…"}, or in the header
`headrace-confirmation`. A person may also read the token there and say it with `headrace webhook confirm`. An endpoint
that takes CloudEvents may instead answer OPTIONS as the CloudEvents webhook specification wants it.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

import msgspec

from headrace.core.moments import rfc3339
from headrace.core.units import is_digits
from headrace.push.bodies import JSON
from headrace.push.endpoint import Answer, EndpointClient, NoAnswer, NotSent
from headrace.push.signature import signed_headers
from headrace.push.spec import WebhookSecrets, WebhookSpec
from headrace.push.verdict import why

CONFIRMATION = "headrace-confirmation"
CONFIRMATION_TYPE = "webhook.confirmation"


class Confirmation(NamedTuple):
    confirmed: bool
    detail: str
    gone: bool = False
    """410: it does not want to be asked again."""
    rate: float = 0.0
    """Requests per second the endpoint is ready to take, if it said so."""


async def ask(
    client: EndpointClient, spec: WebhookSpec, secrets: WebhookSecrets, origin: str, wall_ms: int
) -> Confirmation:
    if spec.form in ("cloudevents", "cloudevents-structured"):
        allowed = await _ask_options(client, spec, origin)
        if allowed is not None:
            return allowed
    document = {
        "type": CONFIRMATION_TYPE,
        "timestamp": rfc3339(wall_ms),
        "data": {"webhook": spec.name, "queue": spec.queue, "token": secrets.token},
    }
    body = msgspec.json.encode(document)
    message_id = f"confirm.{spec.id}"
    headers = {
        "content-type": JSON,
        CONFIRMATION: secrets.token,
        **signed_headers(secrets.signing(wall_ms), message_id, wall_ms // 1000, body),
    }
    try:
        answer = await client.send(spec.url, headers, body, spec.timeout_ms / 1000)
    except (NoAnswer, NotSent) as problem:
        return Confirmation(False, str(problem))
    if not 200 <= answer.status < 300:
        return Confirmation(False, why(answer.status), gone=answer.status == 410)
    if not _says(answer, secrets.token):
        return Confirmation(False, "the endpoint answered, and did not say the token back")
    return Confirmation(True, "")


async def _ask_options(client: EndpointClient, spec: WebhookSpec, origin: str) -> Confirmation | None:
    """CloudEvents, HTTP webhooks 4.1: who may send is answered in a header. None: it does not know how."""
    try:
        answer = await client.send(
            spec.url, {"webhook-request-origin": origin}, b"", spec.timeout_ms / 1000, method="OPTIONS"
        )
    except (NoAnswer, NotSent):
        return None
    allowed = answer.headers.get("webhook-allowed-origin", "")
    if not 200 <= answer.status < 300 or allowed not in ("*", origin):
        return None
    per_minute = answer.headers.get("webhook-allowed-rate", "")
    rate = int(per_minute) / 60 if is_digits(per_minute) and len(per_minute) < 9 else 0.0
    return Confirmation(True, "", rate=rate)


def _says(answer: Answer, token: str) -> bool:
    if _same(answer.headers.get(CONFIRMATION, ""), token) or _same(
        answer.body.decode("utf-8", "replace").strip(), token
    ):
        return True
    try:
        document = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    said = document.get("token") if isinstance(document, dict) else None
    return isinstance(said, str) and _same(said, token)


def _same(said: str, token: str) -> bool:
    return bool(token) and hmac.compare_digest(said.encode(), token.encode())
