"""Machine: the latest offset of each key, in bounded memory.

Long keys are kept as 16-byte digests, so that a map's memory does not depend on what clients call things. Two keys with
one digest would lose the older one's value; at 128 bits that does not happen (Kafka rests on the same).
"""

from __future__ import annotations

from hashlib import blake2b

_DIGEST_BYTES = 16
_ENTRY_BYTES = 176
"""A dict slot, a bytes object and an int, measured generously."""


class LatestOffsets:
    __slots__ = ("_latest", "_most")

    def __init__(self, max_bytes: int) -> None:
        self._latest: dict[bytes, int] = {}
        self._most = max(max_bytes // _ENTRY_BYTES, 1)

    def __len__(self) -> int:
        return len(self._latest)

    def has_room(self, more: int) -> bool:
        """An empty map takes anything, so that every pass gets somewhere."""
        return not self._latest or len(self._latest) + more <= self._most

    def put(self, key: bytes, offset: int) -> None:
        self._latest[key if len(key) <= _DIGEST_BYTES else _digest(key)] = offset

    def latest(self, key: bytes) -> int:
        """-1 for a key that was not seen."""
        return self._latest.get(key if len(key) <= _DIGEST_BYTES else _digest(key), -1)


def _digest(key: bytes) -> bytes:
    # One byte longer than any short key, so that a digest is never taken for one.
    return b"#" + blake2b(key, digest_size=_DIGEST_BYTES).digest()
