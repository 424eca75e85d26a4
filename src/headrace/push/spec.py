"""Codec: what the cluster knows about a webhook: `webhooks/<name>` in the coordinator, validated on the way in (X27).

Its secrets are under a key of their own, `secrets/webhook.<name>`, so that what lists and describes webhooks never holds them (X25).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.push.backoff import RetryPolicy
from headrace.push.bodies import Form
from headrace.push.signature import SigningSecret

MAX_BATCH = 100
MAX_CONCURRENCY = 256
State = Literal["pending", "active", "paused", "disabled"]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]


class Retry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    initial_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 1_000
    multiplier: Annotated[float, Meta(ge=1, le=100)] = 2.0
    max_ms: Annotated[int, Meta(ge=1, le=86_400_000)] = 3_600_000
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.25

    @property
    def policy(self) -> RetryPolicy:
        return RetryPolicy(self.initial_ms, self.multiplier, self.max_ms, self.jitter)


class WebhookSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    id: Annotated[str, Meta(min_length=1, max_length=64)]
    queue: Annotated[str, Meta(min_length=1, max_length=249)]
    url: Annotated[str, Meta(min_length=1, max_length=2_048)]
    state: State = "pending"
    """pending: its owner has not confirmed it, and it gets nothing but the question (X23)."""
    reason: Annotated[str, Meta(max_length=500)] = ""
    """Why it is pending or disabled."""
    form: Form = "json"
    batch_size: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = 1
    batch_wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    """How long a batch that is not full waits for more."""
    timeout_ms: Annotated[int, Meta(ge=100, le=30_000)] = 10_000
    """X22: from the first byte sent to the last received, connecting included."""
    max_concurrency: Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY)] = 32
    rate: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    """Requests per second at most, over all brokers; 0 is no cap."""
    retry: Retry = Retry()
    owns_queue: bool = False
    """The subscription was made for this webhook and goes with it."""
    created_ms: int = 0
    changed_ms: int = 0
    confirmed_ms: int = 0
    owner: str = ""
    """Who set it last: it runs in their name. Empty: it was set while nobody was asked."""
    owner_life: str = ""


class WebhookSecrets(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """The webhook's; secrets of a namesake that was removed are none of ours."""
    current: str
    previous: str = ""
    previous_until_ms: int = 0
    token: str = ""
    """What the endpoint has to say back (X23)."""

    def __repr__(self) -> str:
        return f"WebhookSecrets(id={self.id!r}, ***)"

    def signing(self, wall_ms: int) -> tuple[SigningSecret, ...]:
        """The newest first; while the older one is still honoured, both."""
        texts = [self.current]
        if self.previous and wall_ms < self.previous_until_ms:
            texts.append(self.previous)
        return tuple(SigningSecret.parse(text) for text in texts)


def problem_of(spec: WebhookSpec) -> str | None:
    if spec.batch_size > 1 and spec.form == "raw":
        return "a raw body is one message; batches need the form json, cloudevents or cloudevents-structured"
    return None


def decode_webhook(raw: bytes) -> WebhookSpec | None:
    """None for a value that makes no sense: it is left alone."""
    try:
        return msgspec.json.decode(raw, type=WebhookSpec)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def decode_secrets(raw: bytes) -> WebhookSecrets | None:
    try:
        found = msgspec.json.decode(raw, type=WebhookSecrets)
        found.signing(0)
        return found
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None
