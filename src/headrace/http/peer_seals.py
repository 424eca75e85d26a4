"""Machine: what makes a request of one broker to another that broker's, this request, and said once (A27, F31).

The seal is a MAC over who asks whom (ids and registrations), on whose behalf, method, target, every header, a digest of the
body, the time and a nonce. So a captured request can't be made into another one, said again, said elsewhere, or said to a
later life of the same broker. Time is the answerer's: an asker whose clock is off is told, under the same key, and asks again.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from headrace.core.units import is_digits

SEAL = b"x-headrace-peer"
CLOCK = b"x-headrace-peer-clock"
"""In the answer to a seal that is out of time: what time it is here."""

WINDOW_MS = 30_000
_GENERATION_MS = 30_000
_VERSION = "1"
_NOT_SEALED = frozenset((SEAL, b"host", b"content-length", b"transfer-encoding", b"connection"))
"""The hop's own; the body has its digest, and the client's Host travels under another name."""


class BadSeal(Exception):
    """Why a request is not taken for a peer's."""


class OutOfTime(BadSeal):
    """Well made, but not now: the asker may be told what time it is."""

    def __init__(self, nonce: str) -> None:
        super().__init__("it is out of time")
        self.nonce = nonce


class SealedRequest(NamedTuple):
    """What a request asks for."""

    method: str
    target: str
    headers: Mapping[bytes, bytes]
    body: bytes


class Seal(NamedTuple):
    asker: int
    asker_epoch: int
    answerer: int
    answerer_epoch: int
    at_ms: int
    nonce: str
    principal: str = ""
    """On whose behalf; empty while nobody is asked who he is."""

    def encode(self, key: bytes, said: SealedRequest) -> bytes:
        return ";".join((_VERSION, *map(str, self), self.mac(key, said))).encode("latin-1")

    def mac(self, key: bytes, said: SealedRequest) -> str:
        rows = [f"{name.decode('latin-1')}:{value.decode('latin-1')}" for name, value in said.headers.items()
                if name not in _NOT_SEALED]  # fmt: skip
        digest = sha256(said.body).hexdigest()
        # Neither a target nor a header can hold a line break, so no two requests make one text.
        text = "\n".join((_VERSION, *map(str, self), said.method, said.target, digest, *sorted(rows)))
        return hmac.digest(key, text.encode("latin-1"), "sha256").hex()


def read_seal(key: bytes, value: bytes, said: SealedRequest) -> Seal:
    """Raises BadSeal unless it was made with `key` for exactly this request."""
    try:
        version, *fields, mac = value.decode("ascii").split(";")
        asker, asker_epoch, answerer, answerer_epoch, at_ms, nonce, principal = fields
        numbers = [int(text) for text in (asker, asker_epoch, answerer, answerer_epoch, at_ms)]
    except ValueError:
        raise BadSeal("it can't be read") from None
    seal = Seal(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], nonce, principal)
    if version != _VERSION or not hmac.compare_digest(mac, seal.mac(key, said)):
        raise BadSeal("it was made for another request, or with another key")
    return seal


class Nonces:
    """Those of the last minute at least: as long as a request that carries one can be in time."""

    __slots__ = ("_generations", "_turned_ms")

    def __init__(self) -> None:
        self._generations: list[set[str]] = [set(), set(), set()]
        self._turned_ms = 0

    def is_news(self, nonce: str, now_ms: int) -> bool:
        """Remembers it. `now_ms` is monotonic."""
        if now_ms - self._turned_ms >= _GENERATION_MS:
            idle = now_ms - self._turned_ms >= len(self._generations) * _GENERATION_MS
            kept = [] if idle else self._generations[:-1]
            self._generations = [set(), *kept, *(set() for _ in range(2 - len(kept)))]
            self._turned_ms = now_ms
        if any(nonce in generation for generation in self._generations):
            return False
        self._generations[0].add(nonce)
        return True


def tell_time(key: bytes, nonce: str, at_ms: int) -> bytes:
    mac = hmac.digest(key, f"clock\n{nonce}\n{at_ms}".encode(), "sha256").hex()
    return f"{at_ms};{mac}".encode()


def hear_time(key: bytes, nonce: str, value: str) -> int | None:
    """What the answerer's clock says; None when it was not the answerer who said so, to this request."""
    text, _, _ = value.partition(";")
    if not is_digits(text) or len(text) > 18:
        return None
    told = tell_time(key, nonce, int(text)).decode()
    return int(text) if hmac.compare_digest(told, value) else None
