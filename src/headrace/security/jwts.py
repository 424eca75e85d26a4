"""Codec: tokens that an issuer elsewhere has signed (JWT), verified by a maintained library and held against rules of ours (X6, A12).

Which algorithms count is said here and never by the token; its header names a key of those that the issuer publishes, and nothing else in it is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.security.records import name_problem

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""None with a shared secret: a public key must never pass for one."""
MAX_CHARS = 8 * 1024
MAX_KEYS = 100
LEEWAY_S = 60
_LEAST_RSA_CHARS = 342
"""2048 bits in base64."""


class BadToken(Exception):
    """The text is for our log."""


class UnknownKey(BadToken):
    """Signed with a key that we have not; perhaps the issuer has a new one."""


class Issuer(NamedTuple):
    name: str
    audience: str
    claim: str = "sub"
    prefix: str = ""
    """Before the names that come from it."""


class Verified(NamedTuple):
    name: str
    expires_ms: int


def read_keys(document: Any) -> KeySet:
    """Those of a JWKS document that can sign; what is symmetric, short or of an unknown kind is left out. Raises ValueError."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, KeySet, RSAKey

    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise ValueError("it is no list of keys")
    found: list[Any] = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        public = {
            key: value for key, value in entry.items() if key in ("kty", "kid", "n", "e", "crv", "x", "y")
        }
        try:
            if entry.get("kty") == "RSA" and len(str(entry.get("n"))) >= _LEAST_RSA_CHARS:
                found.append(RSAKey.import_key(public))
            elif entry.get("kty") == "EC":
                found.append(ECKey.import_key(public))
        except (JoseError, ValueError, TypeError):
            continue
    if not found:
        raise ValueError("it has no key that could sign")
    return KeySet(found)


def verify(token: str, keys: KeySet, issuer: Issuer, wall_ms: int) -> Verified:
    """Raises BadToken."""
    from joserfc import jwt
    from joserfc.errors import InvalidKeyIdError, JoseError

    if len(token) > MAX_CHARS:
        raise BadToken("too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
        registry = jwt.JWTClaimsRegistry(
            now=wall_ms // 1000,
            leeway=LEEWAY_S,
            iss={"essential": True, "value": issuer.name},
            aud={"essential": True, "value": issuer.audience},
            exp={"essential": True},
        )
        registry.validate(read.claims)
    except InvalidKeyIdError as problem:
        raise UnknownKey(str(problem)) from None
    except (
        JoseError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as problem:
        raise BadToken(f"{type(problem).__name__}: {problem}") from None
    return _named(read.claims, issuer)


def _named(claims: Mapping[str, Any], issuer: Issuer) -> Verified:
    name, expires = claims.get(issuer.claim), claims["exp"]
    if not isinstance(name, str):
        raise BadToken(f"its claim {issuer.claim} is no name")
    if isinstance(expires, bool) or not isinstance(expires, int | float) or not 0 < expires < 1e11:
        raise BadToken("its end is no time")
    full = issuer.prefix + name
    if (problem := name_problem(full)) is not None:
        raise BadToken(f"its claim {issuer.claim} is no user's name: {problem}")
    return Verified(full, int(expires * 1000))
