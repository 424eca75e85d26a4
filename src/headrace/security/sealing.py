"""Codec: secrets that the coordinator keeps and must not be able to read (A31): AES-256-GCM under a key that only brokers have.

The key is a file, 32 bytes in hex on a line. Two lines are a rotation: the first seals, all of them open.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.security.access_keys import need_private

KEY_BYTES = 32
NONCE_BYTES = 12
MARK_CHARS = 12
_VERSION = b"\x01"


class Sealer:
    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)

    def replace(self, other: Sealer) -> None:
        """Whoever holds this one seals and opens with the keys of the other from now on."""
        self._keys = other._keys

    @property
    def marks(self) -> list[str]:
        """By which keys are told apart without being shown; of the one that seals first."""
        return [sha256(b"headrace secrets.key " + key).hexdigest()[:MARK_CHARS] for key in self._keys]

    def is_newest(self, sealed: bytes, about: str) -> bool:
        """It was sealed with the key that seals now."""
        return Sealer(self._keys[:1]).open(sealed, about) is not None

    def seal(self, secret: bytes, about: str, nonce: bytes) -> bytes:
        """`about`: whose secret it is. It opens under that name only, so nobody can move it to another."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return _VERSION + nonce + AESGCM(self._keys[0]).encrypt(nonce, secret, about.encode())

    def open(self, sealed: bytes, about: str) -> bytes | None:
        """None when no key of ours opens it."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if sealed[:1] != _VERSION or len(sealed) <= 1 + NONCE_BYTES:
            return None
        nonce, rest = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        for key in self._keys:
            try:
                return AESGCM(key).decrypt(nonce, rest, about.encode())
            except InvalidTag:
                continue
        return None


def read_sealer(path: str) -> Sealer:
    """Raises INVALID_CONFIG. The text of the file is never in a message."""
    try:
        with Path(path).open() as opened:
            need_private(path, os.fstat(opened.fileno()))
            keys = [bytes.fromhex(line) for line in opened.read().split()]
    except (OSError, ValueError) as problem:
        words = problem.strerror if isinstance(problem, OSError) and problem.strerror else "not hexadecimal"
        raise _bad(path, words.lower()) from None
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise _bad(path, f"it must have {KEY_BYTES} bytes in hexadecimal on a line")
    return Sealer(keys)


def _bad(path: str, words: str) -> HeadraceError:
    return HeadraceError(
        ErrorKind.INVALID_CONFIG, f"{path} is no file of keys: {words}", "headrace security init makes one"
    )
