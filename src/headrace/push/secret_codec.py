"""Codec: a webhook's secrets as the coordinator keeps them: sealed where the brokers have a key for that (A31), else as they are.

Invariant: what one name was sealed under opens under no other, so nobody who writes the coordinator can move a secret.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from headrace.push.spec import WebhookSecrets, decode_secrets
from headrace.security.sealing import NONCE_BYTES, Sealer

log = logging.getLogger(__name__)


class SealedSecrets(msgspec.Struct, frozen=True, kw_only=True):
    sealed: bytes


class SecretCodec:
    def __init__(self, sealer: Sealer | None, random_bytes: Callable[[int], bytes]) -> None:
        self._sealer = sealer
        self._random_bytes = random_bytes
        self._told: set[str] = set()
        """Webhooks whose secrets we could not open; bounded by what the coordinator holds."""

    def encode(self, name: str, secrets: WebhookSecrets) -> bytes:
        plain = msgspec.json.encode(secrets)
        if self._sealer is None:
            return plain
        return msgspec.json.encode(
            SealedSecrets(sealed=self._sealer.seal(plain, _about(name), self._random_bytes(NONCE_BYTES)))
        )

    def is_newest(self, name: str, raw: bytes) -> bool:
        """It is sealed, with the key that seals now."""
        try:
            sealed = msgspec.json.decode(raw, type=SealedSecrets).sealed
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        return self._sealer is not None and self._sealer.is_newest(sealed, _about(name))

    def decode(self, name: str, raw: bytes) -> WebhookSecrets | None:
        """None for what is none, and for what was sealed with a key that this broker has not."""
        try:
            sealed = msgspec.json.decode(raw, type=SealedSecrets).sealed
        except (msgspec.DecodeError, UnicodeDecodeError):
            return decode_secrets(raw)  # from before there was a key
        plain = None if self._sealer is None else self._sealer.open(sealed, _about(name))
        if plain is not None:
            return decode_secrets(plain)
        if name not in self._told:
            self._told.add(name)
            log.error(
                "the secrets of webhook %s can't be opened: this broker needs the secrets.key of the broker that sealed them",
                name,
            )
        return None


def _about(name: str) -> str:
    return f"webhook.{name}"
