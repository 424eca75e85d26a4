"""Driver: the key that all brokers of a cluster share: made once, by whoever is first, and never shown.

Brokers with a file of keys seal it with that, so that who reads the coordinator does not have it (P16). What was made without one stays as it is until secrets are sealed anew.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.metadata import Decision, Metadata
from headrace.cluster import keys
from headrace.cluster.changes import Change, PutKey, absent
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.security.resealing import Resealed
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
            kept = _sealed(fresh, sealer, random_bytes)
        change = Change((absent(key),), (PutKey(key, kept),), "the cluster's key is made")
        await metadata.commit(change, wait=False)
        await metadata.load()
    plain = _opened(held, sealer)
    if plain is None:
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            "the cluster's key is sealed with a key that this broker has not",
            "start it with the secrets.key of the other brokers: --secrets-key-file",
        )
    return plain


async def reseal_shared_key(
    metadata: Metadata, random_bytes: Callable[[int], bytes], sealer: Sealer
) -> Resealed:
    """It stays the same; the coordinator keeps it under the key that seals now (A31), also where it was kept as it is."""
    key = keys.opaque("secrets", NAME)

    async def decide() -> Decision[Resealed]:
        held = metadata.image.opaque("secrets")[NAME]
        if held.startswith(SEALED) and sealer.is_newest(_bytes_in(held), NAME):
            return Decision((), Resealed())
        plain = _opened(held, sealer)
        if plain is None:
            return Decision((), Resealed(lost=("the cluster's key",)))
        put = PutKey(key, _sealed(plain, sealer, random_bytes))
        change = Change((metadata.unchanged(key),), (put,), "the cluster's key is sealed anew")
        return Decision((change,), Resealed(1))

    return await metadata.compare_and_swap(decide, "this")


def _bytes_in(held: bytes) -> bytes:
    return bytes.fromhex(held.removeprefix(SEALED).decode())


def _opened(held: bytes, sealer: Sealer | None) -> bytes | None:
    if not held.startswith(SEALED):
        return bytes.fromhex(held.decode())
    return None if sealer is None else sealer.open(_bytes_in(held), NAME)


def _sealed(plain: bytes, sealer: Sealer, random_bytes: Callable[[int], bytes]) -> bytes:
    return SEALED + sealer.seal(plain, NAME, random_bytes(NONCE_BYTES)).hex().encode()
