"""Machine: SCRAM (RFC 5802, 7677) from the server's side, and what a password leaves behind (A18, X5).

An exchange with a user that does not exist looks like one with a wrong password: a made-up record, always the same for the same
name, and the same work. Channel binding is not offered, so `p=` is refused and `y` is as good as `n`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from headrace.security.records import ScramRecord

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
HASHES = {SHA_256: "sha256", SHA_512: "sha512"}
NUMBERS = {SHA_256: 1, SHA_512: 2}
"""Kafka's numbers of the mechanisms (KIP-554)."""

DEFAULT_ITERATIONS = 8_192
LEAST_ITERATIONS = 4_096
MOST_ITERATIONS = 100_000
SALT_BYTES = 16
NONCE_BYTES = 24
MAX_MESSAGE = 4_096
TOKEN_AUTH = "tokenauth"  # noqa: S105
"""Kafka's extension: who logs in is a delegation token, with its id as the name (A43)."""


class ScramFailed(Exception):
    """The text is for our log; the caller hears one text for everything (A16)."""


class ScramUser(NamedTuple):
    name: str
    record: ScramRecord
    is_real: bool
    credential: str = ""
    """The delegation token that it is in truth; `name` is then its owner's."""
    expires_ms: int = 0


Find = Callable[[str, bool], ScramUser]
"""By name, or by the id of a delegation token. For one that does not exist a made-up record."""


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The slow part: milliseconds. Never on the loop."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def record_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramRecord:
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    server_key = hmac.digest(salted, b"Server Key", name)
    return ScramRecord(salt, iterations, hashlib.new(name, client_key).digest(), server_key)


def made_up(mechanism: str, name: str, secret: bytes, iterations: int = DEFAULT_ITERATIONS) -> ScramRecord:
    """Of nobody: the same salt each time the same name is tried, and keys that no password has."""
    salt = hmac.digest(secret, f"salt {mechanism} {name}".encode(), "sha256")[:SALT_BYTES]
    keys = hmac.digest(secret, f"keys {mechanism} {name}".encode(), HASHES[mechanism])
    return ScramRecord(salt, iterations, keys, keys)


class ScramServer:
    """One exchange: `first` answers the client's first message, `final` its second."""

    def __init__(self, mechanism: str, find: Find, nonce: bytes) -> None:
        self._hash = HASHES[mechanism]
        self._find = find
        self._nonce = base64.b64encode(nonce).decode()
        self._expected = ""
        self._binding = ""
        self._first = ""
        self._user: ScramUser | None = None

    @property
    def is_waiting_for_proof(self) -> bool:
        return self._user is not None

    @property
    def name(self) -> str:
        """Who claims to be there; for delays, before anything is proven."""
        return "" if self._user is None else self._user.name

    def first(self, message: bytes) -> bytes:
        text = _text(message)
        flag, authzid, bare = _three(text)
        if flag not in ("n", "y"):
            raise ScramFailed("channel binding is asked for and not offered")
        attributes = _attributes(bare)
        if len(attributes) < 2 or attributes[0][0] != "n" or attributes[1][0] != "r" or not attributes[1][1]:
            raise ScramFailed("not a first message")
        if any(name == "m" for name, _ in attributes):
            raise ScramFailed("an extension that is mandatory is not known")
        name = _saslname(attributes[0][1])
        if authzid and _saslname(authzid.removeprefix("a=")) != name:
            raise ScramFailed("it wants to act as somebody else")
        user = self._user = self._find(name, (TOKEN_AUTH, "true") in attributes[2:])
        self._binding = base64.b64encode(f"{flag},{authzid},".encode()).decode()
        self._expected = attributes[1][1] + self._nonce
        salt = base64.b64encode(user.record.salt).decode()
        answer = f"r={self._expected},s={salt},i={user.record.iterations}"
        self._first = f"{bare},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> tuple[ScramUser, bytes]:
        """Who it is, and our own proof. Raises ScramFailed."""
        user = self._user
        if user is None:
            raise ScramFailed("the first message is missing")
        text = _text(message)
        without_proof, _, proof = text.rpartition(",p=")
        attributes = _attributes(without_proof)
        # Clients on librdkafka before 2.6 put their own nonce before the whole of ours once more. What was said for this
        # exchange alone is at the end of it in any case, and all of it is signed.
        if (
            [name for name, _ in attributes[:2]] != ["c", "r"]
            or attributes[0][1] != self._binding
            or not attributes[1][1].endswith(self._expected)
        ):
            raise ScramFailed("the nonce or the channel binding is not ours")
        signed = f"{self._first},{without_proof}".encode()
        record = user.record
        signature = hmac.digest(record.stored_key, signed, self._hash)
        try:
            given = base64.b64decode(proof, validate=True)
        except binascii.Error:
            raise ScramFailed("the proof is no base64") from None
        if len(given) != len(signature):
            raise ScramFailed("the proof has another length")
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        stored = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(stored, record.stored_key) or not user.is_real:
            raise ScramFailed(
                f"wrong password for {user.name!r}" if user.is_real else f"no user {user.name!r}"
            )
        verifier = hmac.digest(record.server_key, signed, self._hash)
        return user, b"v=" + base64.b64encode(verifier)


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE:
        raise ScramFailed("a message is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramFailed("a message is no UTF-8") from None


def _three(text: str) -> tuple[str, str, str]:
    parts = text.split(",", 2)
    if len(parts) != 3 or (parts[1] and not parts[1].startswith("a=")):
        raise ScramFailed("not a first message")
    return parts[0], parts[1], parts[2]


def _attributes(text: str) -> list[tuple[str, str]]:
    found = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or (len(name) != 1 and name != TOKEN_AUTH):
            raise ScramFailed("not attributes")
        found.append((name, value))
    return found


def _saslname(text: str) -> str:
    """`=2C` is a comma and `=3D` an equals sign; nothing else may follow one."""
    name = text.replace("=2C", ",").replace("=3D", "\0")
    if "=" in name or "\0" in text or not name:
        raise ScramFailed("not a name")
    return name.replace("\0", "=")
