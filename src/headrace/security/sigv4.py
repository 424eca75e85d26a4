"""Codec: AWS Signature Version 4, from the receiving side (X19).

The canonical request is computed again from the raw path, the raw query and the body as they came; the caller's
`SignedHeaders` must cover what matters. A wrong key, an unknown key and a changed byte get the same refusal.
"""

from __future__ import annotations

import hashlib
import hmac
import posixpath
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, unquote

MAX_SKEW_MS = 5 * 60 * 1000
MAX_LIFE_S = 7 * 24 * 3600
"""Of a URL that is signed, as AWS has it."""
SCHEME = "AWS4-HMAC-SHA256"
_CREDENTIAL = re.compile(
    r"([A-Za-z0-9_./+=@-]{1,128})/([0-9]{8})/([a-z0-9-]{1,32})/([a-z0-9-]{1,32})/aws4_request"
)
_SIGNATURE = "X-Amz-Signature="
_SPACES = re.compile(r" +")
_MAX_KEYS = 1_000
_NOBODY = "no key of ours"


class Credential(NamedTuple):
    """What an Authorization header claims."""

    access_key: str
    date: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str


class Presented(NamedTuple):
    """What a request shows of its signature, wherever it has it."""

    credential: Credential
    stamp: str
    query_string: str
    """Without the signature, which can't sign itself."""
    life_ms: int
    """Of a URL: how long after its stamp it is good; 0: as long as clocks may differ."""


class BadSignature(ValueError):
    """The request is not signed by anybody we know. The text says no more than that."""


def parse_authorization(header: str) -> Credential | None:
    """None when the header is not a complete SigV4 one."""
    scheme, _, rest = header.partition(" ")
    if scheme != SCHEME:
        return None
    fields: dict[str, str] = {}
    for part in rest.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name in fields:
            return None
        fields[name] = value
    found = _CREDENTIAL.fullmatch(fields.get("Credential", ""))
    signed = tuple(fields.get("SignedHeaders", "").split(";"))
    signature = fields.get("Signature", "")
    if found is None or not all(signed) or not re.fullmatch(r"[0-9a-f]{64}", signature):
        return None
    access_key, date, region, service = found.groups()
    return Credential(access_key, date, region, service, signed, signature)


def is_presigned(query_string: str) -> bool:
    return _SIGNATURE in query_string


def parse_presigned(query_string: str) -> Presented | None:
    """A signature in the URL (X-Amz-Signature and its company); None when that is not complete, or not once."""
    fields: dict[str, str] = {}
    signed: list[str] = []
    for part in query_string.split("&"):
        name, _, value = part.partition("=")
        if name.startswith("X-Amz-"):
            if name in fields:
                return None
            fields[name] = unquote(value)
        if name != "X-Amz-Signature":
            signed.append(part)
    header = (
        f"{fields.get('X-Amz-Algorithm', '')} Credential={fields.get('X-Amz-Credential', '')}, "
        f"SignedHeaders={fields.get('X-Amz-SignedHeaders', '')}, Signature={fields.get('X-Amz-Signature', '')}"
    )
    credential = parse_authorization(header)
    life = fields.get("X-Amz-Expires", "")
    if credential is None or not re.fullmatch("[0-9]{1,6}", life) or not 1 <= int(life) <= MAX_LIFE_S:
        return None
    return Presented(credential, fields.get("X-Amz-Date", ""), "&".join(signed), int(life) * 1000)


def _presented(headers: Mapping[bytes, bytes], query_string: str) -> Presented:
    if b"authorization" not in headers and is_presigned(query_string):
        presigned = parse_presigned(query_string)
        if presigned is None:
            raise BadSignature("the URL carries no usable AWS4-HMAC-SHA256 signature")
        return presigned
    credential = parse_authorization(headers.get(b"authorization", b"").decode("latin-1"))
    if credential is None:
        raise BadSignature("the request carries no usable AWS4-HMAC-SHA256 Authorization header")
    return Presented(credential, headers.get(b"x-amz-date", b"").decode("latin-1"), query_string, 0)


def claimed_region(header: str) -> str:
    """The region that an Authorization header names, whether or not the rest of it makes sense; empty when it names none."""
    scope = header.partition("Credential=")[2].partition(",")[0]
    found = _CREDENTIAL.fullmatch(scope.strip())
    return found.group(3) if found is not None and found.group(4) == "sqs" else ""


class SignatureVerifier:
    """Knows the keys. `verify` raises BadSignature."""

    def __init__(self, find: Callable[[str], str | None], service: str = "sqs") -> None:
        """`find`: the secret of an access key."""
        self._find = find
        self._service = service
        self._signing_keys: dict[tuple[str, str, str, str], bytes] = {}

    def verify(
        self,
        method: str,
        path: str,
        query_string: str,
        headers: Mapping[bytes, bytes],
        body: bytes,
        wall_ms: int,
    ) -> Credential:
        presented = _presented(headers, query_string)
        credential, stamp = presented.credential, presented.stamp
        self._check_scope(presented, headers, wall_ms)
        payload = hashlib.sha256(body).hexdigest()
        claimed = headers.get(b"x-amz-content-sha256")
        if claimed is not None and not hmac.compare_digest(claimed, payload.encode()):
            raise BadSignature("the body is not the one that was signed")
        canonical = canonical_request(
            method, path, presented.query_string, headers, credential.signed_headers, payload
        )
        secret = self._find(credential.access_key)
        expected = self._signature(credential, stamp, canonical, secret)
        if not hmac.compare_digest(expected, credential.signature) or secret is None:
            raise BadSignature("the signature does not match")
        return credential

    def _check_scope(self, presented: Presented, headers: Mapping[bytes, bytes], wall_ms: int) -> None:
        credential, stamp = presented.credential, presented.stamp
        if credential.service != self._service or not stamp.startswith(credential.date):
            raise BadSignature("the credential's scope is not this service on this day")
        try:
            signed_at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise BadSignature("x-amz-date is not a time") from None
        age_ms = wall_ms - signed_at.timestamp() * 1000
        if age_ms < -MAX_SKEW_MS or age_ms > (presented.life_ms or MAX_SKEW_MS):
            raise BadSignature("the signature is too old or from the future")
        # The date of a URL is a part of its query, which is always signed.
        required = {"host"} if presented.life_ms else {"host", "x-amz-date"}
        if b"x-amz-target" in headers:
            required.add("x-amz-target")
        if not required.issubset(credential.signed_headers):
            raise BadSignature("a header that matters is not signed")
        if len(set(credential.signed_headers)) != len(credential.signed_headers):
            raise BadSignature("a header is signed twice")

    def _signature(self, credential: Credential, stamp: str, canonical: str, secret: str | None) -> str:
        scope = f"{credential.date}/{credential.region}/{credential.service}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"{SCHEME}\n{stamp}\n{scope}\n{digest}"
        return hmac.digest(self._signing_key(credential, secret), text.encode(), "sha256").hex()

    def _signing_key(self, credential: Credential, secret: str | None) -> bytes:
        # An unknown key takes the same way as a known one, so that time tells nothing.
        name = _NOBODY if secret is None else credential.access_key
        at = (name, secret or _NOBODY, credential.date, credential.region)
        key = self._signing_keys.get(at)
        if key is None:
            key = f"AWS4{secret or _NOBODY}".encode()
            for part in (credential.date, credential.region, credential.service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            if len(self._signing_keys) >= _MAX_KEYS:
                self._signing_keys.clear()
            self._signing_keys[at] = key
        return key


def canonical_request(
    method: str,
    path: str,
    query_string: str,
    headers: Mapping[bytes, bytes],
    signed_headers: tuple[str, ...],
    payload_digest: str,
) -> str:
    lines = []
    for name in signed_headers:
        value = headers.get(name.encode("latin-1", "replace"))
        if value is None:
            raise BadSignature("a signed header is missing")
        lines.append(f"{name}:{_SPACES.sub(' ', value.decode('utf-8', 'replace').strip())}\n")
    return "\n".join(
        (
            method,
            quote(_normal_path(path), safe="/~"),
            _canonical_query(query_string),
            "".join(lines),
            ";".join(signed_headers),
            payload_digest,
        )
    )


def _normal_path(path: str) -> str:
    """Without dot segments and doubled slashes; a last slash stays."""
    if path in ("", "/"):
        return "/"
    normal = posixpath.normpath(path)
    normal = "/" + normal.lstrip("/")
    return normal + "/" if path.endswith("/") and normal != "/" else normal


def _canonical_query(query_string: str) -> str:
    pairs = []
    for part in query_string.split("&") if query_string else ():
        name, _, value = part.partition("=")
        pairs.append((name, value))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
