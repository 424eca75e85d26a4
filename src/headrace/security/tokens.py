"""Codec: tokens for programs (A23): `hr_`, 256 random bits, and a checksum by which scanners for secrets know one from chance.

What is kept is the SHA-256: so much chance needs no slow hash.
"""

from __future__ import annotations

import base64
import hmac
import re
from hashlib import sha256

PREFIX = "hr_"
RANDOM_BYTES = 32
_CHECKSUM = 6
_FORM = re.compile(r"hr_[A-Za-z0-9_-]{43}[A-Za-z0-9_-]{6}")

DEFAULT_DAYS = 90
MOST_DAYS = 3_650


def make_token(random: bytes) -> str:
    body = base64.urlsafe_b64encode(random).decode().rstrip("=")
    return f"{PREFIX}{body}{_checksum(body)}"


def digest_of(token: str) -> str | None:
    """Under which it is kept; None for what can't be a token."""
    if _FORM.fullmatch(token) is None:
        return None
    body = token[len(PREFIX) : -_CHECKSUM]
    if not hmac.compare_digest(_checksum(body), token[-_CHECKSUM:]):
        return None
    return sha256(token.encode()).hexdigest()


def _checksum(body: str) -> str:
    return base64.urlsafe_b64encode(sha256(body.encode()).digest()).decode()[:_CHECKSUM]
