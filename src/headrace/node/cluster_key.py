"""Driver: the key that all brokers of a cluster share: made once, by whoever is first, and never shown.

Brokers with a file of keys seal it with that, so that who reads the coordinator does not have it (P16). What was made without one stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.metadata import Metadata
from headrace.cluster import keys
from headrace.cluster.changes import Change, PutKey, absent
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.security.sealing import NONCE_BYTES, Sealer

NAME = "cluster"
KEY_BYTES = 32
SEALED = b"sealed:"


async def shared_key(
    metadata: Metadata, random_bytes: Callable[[int], bytes], sealer: Sealer | None
) -> bytes:
    """Raises INVALID_CONFIG where it was sealed with a key that this broker has not."""
    key = keys.opaque("secrets", NAME)
    while (held := metadata.image.opaque("secrets").get(NAME)) is None:
        fresh = random_bytes(KEY_BYTES)
        kept = fresh.hex().encode()
        if sealer is not None:
            kept = SEALED + sealer.seal(fresh, NAME, random_bytes(NONCE_BYTES)).hex().encode()
        change = Change((absent(key),), (PutKey(key, kept),), "the cluster's key is made")
        await metadata.commit(change, wait=False)
        await metadata.load()
    if not held.startswith(SEALED):
        return bytes.fromhex(held.decode())
    sealed = bytes.fromhex(held.removeprefix(SEALED).decode())
    plain = None if sealer is None else sealer.open(sealed, NAME)
    if plain is None:
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            "the cluster's key is sealed with a key that this broker has not",
            "start it with the secrets.key of the other brokers: --secrets-key-file",
        )
    return plain
