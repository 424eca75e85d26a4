"""Driver: the keys that an issuer of tokens publishes, fetched and fetched again; and who its tokens say somebody is (A12, X6).

While there are no keys nobody is told that a token is wrong: that is a trouble of ours (A17). A token with a key that we have not makes us look again, but
no more often than every half minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.net.h1_client import H1Client, HttpFailure, Origin
from headrace.security.jwts import BadToken, Issuer, UnknownKey, Verified, read_keys, verify
from headrace.security.passwords import Busy

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

log = logging.getLogger(__name__)

REFRESH_S = 600.0
RETRY_S = 5.0
LOOK_AGAIN_MS = 30_000
FETCH_S = 5.0
MAX_JWKS_BYTES = 1 << 20
MOST_KNOWN = 10_000
DISCOVERY = "/.well-known/openid-configuration"


class Issuers:
    """One, so far."""

    def __init__(self, runtime: Runtime, issuer: Issuer, jwks: str, ca_file: str = "") -> None:
        """`jwks`: a URL (https; http on loopback only) or a file; empty: the issuer itself says where they are (OIDC discovery).
        Raises INVALID_CONFIG."""
        self._runtime = runtime
        self._issuer = issuer
        self._jwks = jwks
        self._ca_file = ca_file
        self._discovery = "" if jwks else issuer.name.rstrip("/") + DISCOVERY
        for place in filter(None, (jwks, self._discovery)):
            _origin(place, ca_file)
        self._client = H1Client()
        self._keys: KeySet | None = None
        self._wanted = asyncio.Event()
        self._looked_ms = -LOOK_AGAIN_MS
        """When a token last made us look."""
        self._known: dict[bytes, Verified] = {}
        """Verified before, by their digests; forgotten when there are other keys."""

    def check(self, token: str) -> Verified:
        """Raises BadToken; Busy when it can't be found out now."""
        if self._keys is None:
            raise Busy
        wall_ms = self._runtime.clock.wall_ms()
        digest = sha256(token.encode("utf-8", "replace")).digest()
        known = self._known.get(digest)
        if known is None:
            try:
                known = verify(token, self._keys, self._issuer, wall_ms)
            except UnknownKey:
                if self._looks_again():
                    raise Busy from None
                raise
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[digest] = known
        if wall_ms >= known.expires_ms:
            raise BadToken("it has ended")
        return known

    def _looks_again(self) -> bool:
        now_ms = self._runtime.clock.now_ms()
        if now_ms - self._looked_ms < LOOK_AGAIN_MS:
            return False
        self._looked_ms = now_ms
        self._wanted.set()
        return True

    async def run(self) -> None:
        while True:
            self._wanted.clear()
            loaded = await self._load()
            try:
                async with asyncio.timeout(REFRESH_S if loaded else RETRY_S):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def _load(self) -> bool:
        try:
            raw = await self._fetch()
            keys = read_keys(json.loads(raw))
        except (OSError, ValueError, RecursionError, HttpFailure) as problem:
            log.warning("the keys of %s can't be had: %s", self._issuer.name, problem)
            return False
        self._keys = keys
        self._known.clear()
        return True

    async def _fetch(self) -> bytes:
        if not self._discovery:
            return await self._get(self._jwks)
        document = json.loads(await self._get(self._discovery))
        place = document.get("jwks_uri") if isinstance(document, dict) else None
        if (
            not isinstance(place, str)
            or not urlsplit(place).scheme
            or document.get("issuer") != self._issuer.name
        ):
            raise ValueError("what it says about itself is about another issuer, or names no keys")
        return await self._get(place)

    async def _get(self, place: str) -> bytes:
        try:
            origin = _origin(place, self._ca_file)
        except HeadraceError as problem:
            raise ValueError(problem.detail) from None
        if origin is None:
            return await self._runtime.run_blocking(Path(place).read_bytes)
        parts = urlsplit(place)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        got = await self._client.request(
            origin, "GET", target, timeout_s=FETCH_S, max_body_bytes=MAX_JWKS_BYTES
        )
        if got.status != 200:
            raise ValueError(f"it answers {got.status}")
        return got.body


def _origin(jwks: str, ca_file: str) -> Origin | None:
    """None: a file."""
    parts = urlsplit(jwks)
    if not parts.scheme:
        return None
    host = parts.hostname or ""
    local = host in ("localhost", "127.0.0.1", "::1")
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            f"{jwks} is not where keys can be had safely",
            "use https, a file, or http on this host",
        )
    tls = ssl.create_default_context(cafile=ca_file or None) if parts.scheme == "https" else None
    return Origin(host, parts.port or (443 if tls else 80), tls)
