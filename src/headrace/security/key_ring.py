"""Driver: access keys by their ids: those of the coordinator, sealed and each a user's, and those of a file (A31).

Opening one costs microseconds and is done once; what was opened is good while the coordinator says the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.security.image import SecurityImage
from headrace.security.records import KeyRecord
from headrace.security.sealing import NONCE_BYTES, Sealer

log = logging.getLogger(__name__)

MOST_OPEN = 10_000


class AccessKey(NamedTuple):
    owner: str
    secret: str


class _Opened(NamedTuple):
    record: KeyRecord
    key: AccessKey


class KeyRing:
    def __init__(
        self,
        image: SecurityImage,
        random_bytes: Callable[[int], bytes],
        sealer: Sealer | None = None,
        of_file: Mapping[str, str] | None = None,
    ) -> None:
        """`of_file`: id -> secret. When there are any, every SQS request must be signed, whatever the mode."""
        self._image = image
        self._random_bytes = random_bytes
        self._sealer = sealer
        self._of_file = dict(of_file or {})
        self.must_sign = bool(of_file)
        self._opened: dict[str, _Opened] = {}
        self._told: set[str] = set()
        """Ids of records of ours that we could not open; bounded by what the coordinator holds."""

    def find(self, key_id: str) -> AccessKey | None:
        """None for one that nobody has, or whose owner is shut out (A9). A key of the file is the user of its name."""
        secret = self._of_file.get(key_id)
        if secret is not None:
            return AccessKey(key_id, secret)
        record = self._image.keys.get(key_id)
        if record is None or not self._image.is_enabled(record.owner):
            return None
        opened = self._opened.get(key_id)
        if opened is None or opened.record is not record:
            plain = self.open(record.sealed, key_id)
            if plain is None:
                self._tell(key_id)
                return None
            if len(self._opened) >= MOST_OPEN:
                self._opened.clear()
            opened = self._opened[key_id] = _Opened(record, AccessKey(record.owner, plain.decode()))
        return opened.key

    def _tell(self, key_id: str) -> None:
        if key_id not in self._told:
            self._told.add(key_id)
            log.error(
                "access key %s can't be opened: this broker needs the secrets.key of the broker that made it",
                key_id,
            )

    def secret_of(self, key_id: str) -> str | None:
        key = self.find(key_id)
        return None if key is None else key.secret

    @property
    def can_seal(self) -> bool:
        return self._sealer is not None

    def open(self, sealed: bytes, about: str) -> bytes | None:
        """None: this broker has not the key that sealed it."""
        return None if self._sealer is None else self._sealer.open(sealed, about)

    def is_newest(self, sealed: bytes, about: str) -> bool:
        """It was sealed with the key that seals now."""
        return self._sealer is not None and self._sealer.is_newest(sealed, about)

    @property
    def marks(self) -> list[str]:
        """Of the keys that seal and open here, the one that seals first; none where there is no file of them."""
        return [] if self._sealer is None else self._sealer.marks

    def seal(self, key_id: str, secret: str) -> bytes:
        """Raises POLICY_VIOLATION where this broker has nothing to seal with."""
        if self._sealer is None:
            raise HeadraceError(
                ErrorKind.POLICY_VIOLATION,
                "this broker has no key to seal secrets with, so it keeps none",
                "start it with --secure, or with --secrets-key-file (headrace security init makes one; the same for all brokers)",
            )
        return self._sealer.seal(secret.encode(), key_id, self._random_bytes(NONCE_BYTES))
