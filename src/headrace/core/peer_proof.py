"""Machine: how two brokers prove to each other who they are when a connection begins (A1, A2, A49).

    asker     -> hello: both ids, both registrations (broker epochs), a nonce
    answerer  -> its own nonce, and a proof over the hello and both nonces
    asker     -> its proof over the same, under another label

Each proof is an HMAC under a key that only brokers of the cluster have. Both nonces are in both proofs, so nothing can be
played back; the labels differ, so nothing can be reflected; ids and epochs are in them, so a proof is good for one pair of
lives only. It proves the two ends, not the bytes that follow: on a network that others can write to, use TLS.
"""

from __future__ import annotations

import hmac
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

MECHANISM = "HEADRACE-BROKER"
"""As a SASL mechanism. Only brokers use it; clients never see it on offer."""

NONCE_BYTES = 32
_PROOF_BYTES = 32
_VERSION = 1
_HELLO = Struct(">Biqiq32s")
_ASKER, _ANSWERER = b"asker", b"answerer"


class BadProof(Exception):
    """The other side did not prove what it claims, or claims what we know to be otherwise."""


class Hello(NamedTuple):
    asker: int
    asker_epoch: int
    answerer: int
    answerer_epoch: int
    nonce: bytes

    def encode(self) -> bytes:
        return _HELLO.pack(_VERSION, *self)

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        try:
            version, *fields = _HELLO.unpack(data)
        except StructError:
            raise BadProof("not a hello") from None
        if version != _VERSION:
            raise BadProof(f"a hello of version {version}")
        return cls(*fields)


def _proof(key: bytes, label: bytes, hello: Hello, nonce: bytes) -> bytes:
    return hmac.digest(key, label + hello.encode() + nonce, "sha256")


class Answerer:
    """One connection's end at the broker that was called."""

    def __init__(self, key: bytes, hello: Hello, nonce: bytes) -> None:
        self.hello = hello
        self._key = key
        self._nonce = nonce

    def challenge(self) -> bytes:
        return self._nonce + _proof(self._key, _ANSWERER, self.hello, self._nonce)

    def check(self, proof: bytes) -> None:
        """Raises BadProof."""
        if not hmac.compare_digest(proof, _proof(self._key, _ASKER, self.hello, self._nonce)):
            raise BadProof("the proof is wrong")


def answer_challenge(key: bytes, hello: Hello, challenge: bytes) -> bytes:
    """The asker's proof, once the answerer has given its own. Raises BadProof."""
    nonce, proof = challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
    if len(nonce) != NONCE_BYTES or len(proof) != _PROOF_BYTES:
        raise BadProof("not a challenge")
    if not hmac.compare_digest(proof, _proof(key, _ANSWERER, hello, nonce)):
        raise BadProof("the other side does not have the cluster's key")
    return _proof(key, _ASKER, hello, nonce)
