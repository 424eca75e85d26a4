"""Codec: Standard Webhooks: who sent a request, and when, in a way that only the holder of the secret can say (X23).

    webhook-id: 0191…            the same for every attempt to deliver a message, so a receiver can drop repetitions
    webhook-timestamp: 1790000000
    webhook-signature: v1,<base64 of HMAC-SHA256(secret, "id.timestamp.body")> v1,<the same under the older secret>

Invariant: a secret never shows in a repr, so it can't end in a log or in an error by accident (X25).
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Sequence

PREFIX = "whsec_"
MIN_SECRET_BYTES = 24
MAX_SECRET_BYTES = 64
NEW_SECRET_BYTES = 32

ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"


class SigningSecret:
    """The bytes behind `whsec_…`."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
            raise ValueError(f"a secret has {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes")
        self._key = key

    @classmethod
    def parse(cls, text: str) -> SigningSecret:
        """`whsec_` and base64. Raises ValueError, whose text does not repeat the secret."""
        if not text.startswith(PREFIX):
            raise ValueError(f"a secret begins with {PREFIX}")
        try:
            return cls(b64decode(text[len(PREFIX) :].encode(), validate=True))
        except (Error, UnicodeEncodeError):
            raise ValueError(f"what follows {PREFIX} is base64") from None

    def reveal(self) -> str:
        """For the one who made the webhook, once; and for the store."""
        return PREFIX + b64encode(self._key).decode()

    def sign(self, message_id: str, timestamp_s: int, body: bytes) -> str:
        signed = b"%s.%d.%s" % (message_id.encode(), timestamp_s, body)
        return "v1," + b64encode(hmac.digest(self._key, signed, "sha256")).decode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigningSecret) and hmac.compare_digest(self._key, other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return "SigningSecret(***)"


def signed_headers(
    secrets: Sequence[SigningSecret], message_id: str, timestamp_s: int, body: bytes
) -> dict[str, str]:
    """While a secret is being replaced there are two, and the receiver may know either."""
    return {
        ID: message_id,
        TIMESTAMP: str(timestamp_s),
        SIGNATURE: " ".join(secret.sign(message_id, timestamp_s, body) for secret in secrets),
    }
