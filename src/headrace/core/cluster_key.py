"""Kernel: one secret per cluster, and a key of its own for each use of it (A27).

HKDF (RFC 5869) with SHA-256. A key that is known for one use says nothing about the others, so what signs a receipt can
never pass for what proves a broker.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

PEER_CONNECTIONS = "peer connections"
PEER_REQUESTS = "peer requests"
RECEIPTS = "receipts"
MADE_UP_USERS = "made up users"

_SALT = bytes(sha256().digest_size)


def derive(cluster_key: bytes, use: str, size: int = 32) -> bytes:
    extracted = hmac.digest(_SALT, cluster_key, "sha256")
    made, block = b"", b""
    for counter in range(1, -(-size // sha256().digest_size) + 1):
        block = hmac.digest(extracted, block + b"headrace " + use.encode() + bytes((counter,)), "sha256")
        made += block
    return made[:size]
