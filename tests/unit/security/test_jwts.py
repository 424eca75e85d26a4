"""X6, A12, P7: a corpus of hostile tokens, signed for real; what is not the issuer's, for us and of today is nobody's."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.jwts import BadToken, Issuer, UnknownKey, read_keys, verify

NOW_MS = 1_800_000_000_000
NOW = NOW_MS // 1000
ISSUER = Issuer("https://issuer.example", "headrace")
KEY = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
CLAIMS = {"iss": ISSUER.name, "aud": "headrace", "sub": "alice", "exp": NOW + 600}


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def rsa_jwk(key: rsa.RSAPrivateKey, kid: str) -> dict[str, str]:
    public = key.public_key().public_numbers()
    return {"kty": "RSA", "kid": kid, "use": "sig", "n": number(public.n), "e": number(public.e)}


def ec_jwk(key: ec.EllipticCurvePrivateKey, kid: str) -> dict[str, str]:
    public = key.public_key().public_numbers()
    return {"kty": "EC", "kid": kid, "crv": "P-256", "x": number(public.x), "y": number(public.y)}


KEYS = read_keys({"keys": [rsa_jwk(KEY, "r"), ec_jwk(CURVE, "e")]})


def rs256(data: bytes, key: rsa.RSAPrivateKey = KEY) -> bytes:
    return key.sign(data, padding.PKCS1v15(), hashes.SHA256())


def es256(data: bytes) -> bytes:
    r, s = decode_dss_signature(CURVE.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def token(
    claims: Any = CLAIMS,
    header: dict[str, Any] | None = None,
    sign: Callable[[bytes], bytes] = rs256,
) -> str:
    head = {"alg": "RS256", "kid": "r", "typ": "JWT"} if header is None else header
    signed = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}"
    return f"{signed}.{b64(sign(signed.encode()))}"


PEM = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def test_what_the_issuer_signs_is_who_it_says() -> None:
    assert verify(token(), KEYS, ISSUER, NOW_MS) == ("alice", (NOW + 600) * 1000)
    curved = token(header={"alg": "ES256", "kid": "e"}, sign=es256)
    assert verify(curved, KEYS, ISSUER, NOW_MS).name == "alice"
    several = token({**CLAIMS, "aud": ["other", "headrace"]})
    assert verify(several, KEYS, ISSUER._replace(prefix="oidc."), NOW_MS).name == "oidc.alice"
    by_mail = token({**CLAIMS, "email": "alice@example.com"})
    assert verify(by_mail, KEYS, ISSUER._replace(claim="email"), NOW_MS).name == "alice@example.com"


HOSTILE = {
    "alg none": token(header={"alg": "none", "kid": "r"}, sign=lambda data: b""),
    "alg None": token(header={"alg": "None", "kid": "r"}, sign=lambda data: b""),
    "no alg": token(header={"kid": "r"}),
    "the public key as a shared secret": token(
        header={"alg": "HS256", "kid": "r"}, sign=lambda data: hmac.digest(PEM, data, "sha256")
    ),
    "another alg than the key's": token(header={"alg": "ES256", "kid": "r"}),
    "another key under that name": token(sign=lambda data: rs256(data, OTHER)),
    "a key in the header": token(
        header={"alg": "RS256", "jwk": rsa_jwk(OTHER, "r")}, sign=lambda data: rs256(data, OTHER)
    ),
    "a place for keys in the header": token(
        header={"alg": "RS256", "kid": "r", "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/c"},
        sign=lambda data: rs256(data, OTHER),
    ),
    "a path as kid": token(header={"alg": "RS256", "kid": "../../../../dev/null"}),
    "crit": token(header={"alg": "RS256", "kid": "r", "crit": ["x"], "x": 1}),
    "unencoded": token(header={"alg": "RS256", "kid": "r", "b64": False, "crit": ["b64"]}),
    "expired": token({**CLAIMS, "exp": NOW - 61}),
    "no end": token({key: value for key, value in CLAIMS.items() if key != "exp"}),
    "an end that is true": token({**CLAIMS, "exp": True}),
    "an end that is text": token({**CLAIMS, "exp": str(NOW + 600)}),
    "an end that is infinite": token({**CLAIMS, "exp": 1e400}),
    "not yet": token({**CLAIMS, "nbf": NOW + 120}),
    "another issuer": token({**CLAIMS, "iss": "https://issuer.example.evil"}),
    "issuers": token({**CLAIMS, "iss": [ISSUER.name]}),
    "no issuer": token({key: value for key, value in CLAIMS.items() if key != "iss"}),
    "for others": token({**CLAIMS, "aud": "billing"}),
    "for nobody": token({**CLAIMS, "aud": []}),
    "no audience": token({key: value for key, value in CLAIMS.items() if key != "aud"}),
    "nobody": token({key: value for key, value in CLAIMS.items() if key != "sub"}),
    "a name that is a list": token({**CLAIMS, "sub": ["alice"]}),
    "a broker": token({**CLAIMS, "sub": "Broker:1"}),
    "a name with a line": token({**CLAIMS, "sub": "a\nb"}),
    "anonymous": token({**CLAIMS, "sub": "ANONYMOUS"}),
    "claims that are a list": token([CLAIMS]),
    "claims that are text": token("alice"),
    "giant": token({**CLAIMS, "more": "x" * 9_000}),
    "deep": token(json.loads("[" * 500 + "]" * 500)),
    "two parts": ".".join(token().split(".")[:2]),
    "five parts": token() + ".a.b",
    "empty": "",
    "dots": "..",
    "signature cut": token()[:-4],
    "not text": "\udcff",
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_p7_a_hostile_token_is_nobodys(what: str) -> None:
    with pytest.raises(BadToken):
        verify(HOSTILE[what], KEYS, ISSUER, NOW_MS)


def test_x6_a_key_that_is_not_known_is_told_apart_so_that_keys_are_fetched_again() -> None:
    with pytest.raises(UnknownKey):
        verify(token(header={"alg": "RS256", "kid": "new"}), KEYS, ISSUER, NOW_MS)


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_p7_one_changed_bit_is_nobodys(place: int, bit: int) -> None:
    good = token().split(".")
    raw = bytearray(base64.urlsafe_b64decode(good[2] + "=="))
    raw[place % len(raw)] ^= 1 << bit
    with pytest.raises(BadToken):
        verify(".".join((*good[:2], b64(bytes(raw)))), KEYS, ISSUER, NOW_MS)


@given(st.text(max_size=200))
def test_p7_any_text_is_refused_and_never_breaks(text: str) -> None:
    with pytest.raises(BadToken):
        verify(text, KEYS, ISSUER, NOW_MS)


def test_x6_keys_that_could_not_protect_are_left_out() -> None:
    small = rsa.generate_private_key(65537, 1024)
    shared = {"kty": "oct", "kid": "o", "k": b64(hashlib.sha256(b"x").digest())}
    sealing = {**rsa_jwk(OTHER, "enc"), "use": "enc"}
    documents: tuple[object, ...] = (
        {},
        [],
        {"keys": {}},
        {"keys": [shared, rsa_jwk(small, "s"), sealing, 7, {"kty": "RSA"}]},
    )
    for document in documents:
        with pytest.raises(ValueError, match="it"):
            read_keys(document)
    assert len(read_keys({"keys": [shared, rsa_jwk(KEY, "r")]}).keys) == 1
