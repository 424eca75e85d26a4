"""SigV4 from the receiving side agrees with botocore, and refuses everything that was changed (X19)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.sigv4 import (
    MAX_SKEW_MS,
    BadSignature,
    SignatureVerifier,
    parse_authorization,
    parse_presigned,
)

KEYS = {"AKIDEXAMPLE": "secret/with+slash", "OTHER": "another"}
Signed = tuple[str, str, str, dict[bytes, bytes], bytes]


def sign(
    body: bytes, path: str = "/", query: str = "", key: str = "AKIDEXAMPLE", secret: str | None = None,
    service: str = "sqs", extra: dict[str, str] | None = None,
) -> tuple[Signed, int]:  # fmt: skip
    url = f"http://localhost:9324{path}" + (f"?{query}" if query else "")
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "AmazonSQS.SendMessage",
        **(extra or {}),
    }
    request = AWSRequest("POST", url, headers, body)
    SigV4Auth(Credentials(key, secret or KEYS.get(key, "none")), service, "eu-west-1").add_auth(request)
    sent = {name.lower().encode(): str(value).encode() for name, value in request.headers.items()}
    sent[b"host"] = b"localhost:9324"
    stamp = datetime.strptime(sent[b"x-amz-date"].decode(), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return ("POST", path, query, sent, body), int(stamp.timestamp() * 1000)


VERIFIER = SignatureVerifier(KEYS.get)
_word = st.text("abcXYZ019-_.~", min_size=1, max_size=8)


@given(
    body=st.binary(max_size=200),
    path=st.lists(_word | st.just("a%20b") | st.just("%C3%A9"), max_size=3).map(lambda parts: "/" + "/".join(parts)),
    query=st.lists(st.tuples(_word, _word), max_size=3, unique_by=lambda pair: pair[0]),
    note=st.text("ab  c", min_size=1, max_size=6).filter(lambda text: text.strip() == text),
)  # fmt: skip
def test_what_botocore_signs_is_accepted(
    body: bytes, path: str, query: list[tuple[str, str]], note: str
) -> None:
    text = "&".join(f"{name}={value}" for name, value in query)
    signed, at_ms = sign(body, path, text, extra={"X-Amz-Note": note})
    credential = VERIFIER.verify(*signed, at_ms)
    assert (credential.access_key, credential.region, credential.service) == (
        "AKIDEXAMPLE",
        "eu-west-1",
        "sqs",
    )


@given(body=st.binary(min_size=1, max_size=50), at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_changed_bit_of_the_body_is_refused(body: bytes, at: int, bit: int) -> None:
    (method, path, query, headers, _), at_ms = sign(body)
    changed = bytearray(body)
    changed[at % len(body)] ^= 1 << bit
    with pytest.raises(BadSignature):
        VERIFIER.verify(method, path, query, headers, bytes(changed), at_ms)


@pytest.mark.parametrize("name", [b"host", b"x-amz-target", b"x-amz-date", b"content-type"])
def test_a_changed_signed_header_is_refused(name: bytes) -> None:
    (method, path, query, headers, body), at_ms = sign(b"{}")
    with pytest.raises(BadSignature):
        VERIFIER.verify(method, path, query, {**headers, name: headers[name] + b"0"}, body, at_ms)


def test_path_and_query_are_signed() -> None:
    (method, path, query, headers, body), at_ms = sign(b"{}", "/1/q", "a=1")
    with pytest.raises(BadSignature):
        VERIFIER.verify(method, "/1/r", query, headers, body, at_ms)
    with pytest.raises(BadSignature):
        VERIFIER.verify(method, path, "a=2", headers, body, at_ms)
    VERIFIER.verify(method, path, query, headers, body, at_ms)


def test_an_unknown_key_and_a_wrong_secret_get_the_same_refusal() -> None:
    refusals = []
    for key, secret in (("STRANGER", "x"), ("AKIDEXAMPLE", "wrong"), ("STRANGER", "no key of ours")):
        signed, at_ms = sign(b"{}", key=key, secret=secret)
        with pytest.raises(BadSignature) as caught:
            VERIFIER.verify(*signed, at_ms)
        refusals.append(str(caught.value))
    assert len(set(refusals)) == 1


def test_five_minutes_of_skew_and_no_more() -> None:
    signed, at_ms = sign(b"{}")
    VERIFIER.verify(*signed, at_ms + MAX_SKEW_MS)
    VERIFIER.verify(*signed, at_ms - MAX_SKEW_MS)
    for moved in (MAX_SKEW_MS + 1, -MAX_SKEW_MS - 1):
        with pytest.raises(BadSignature, match="too old"):
            VERIFIER.verify(*signed, at_ms + moved)


def test_another_service_is_refused() -> None:
    signed, at_ms = sign(b"{}", service="s3")
    with pytest.raises(BadSignature):
        VERIFIER.verify(*signed, at_ms)


def test_the_target_must_be_signed() -> None:
    (method, path, query, headers, body), at_ms = sign(b"{}")
    credential = parse_authorization(headers[b"authorization"].decode())
    assert credential is not None and "x-amz-target" in credential.signed_headers
    reduced = headers[b"authorization"].replace(b";x-amz-target", b"")
    with pytest.raises(BadSignature, match="not signed"):
        VERIFIER.verify(method, path, query, {**headers, b"authorization": reduced}, body, at_ms)


def presign(life_s: int = 3600, secret: str = KEYS["AKIDEXAMPLE"]) -> tuple[Signed, int]:
    """A GET whose signature is in its URL, as botocore makes it."""
    url = "http://localhost:9324/000000000000/jobs?Action=SendMessage&MessageBody=a%20%26%20b"
    request = AWSRequest("GET", url)
    SigV4QueryAuth(Credentials("AKIDEXAMPLE", secret), "sqs", "eu-west-1", life_s).add_auth(request)
    path, _, query = request.url.removeprefix("http://localhost:9324").partition("?")
    stamp = re.search("X-Amz-Date=([0-9TZ]+)", query)
    assert stamp is not None
    signed_at = datetime.strptime(stamp[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return ("GET", path, query, {b"host": b"localhost:9324"}, b""), int(signed_at.timestamp() * 1000)


def test_f32_a_signature_in_the_url_is_read_and_lasts_as_long_as_it_says() -> None:
    signed, at_ms = presign(life_s=60)
    for moved in (0, 60_000, -MAX_SKEW_MS):
        assert VERIFIER.verify(*signed, at_ms + moved).access_key == "AKIDEXAMPLE"
    for moved in (60_001, -MAX_SKEW_MS - 1):
        with pytest.raises(BadSignature, match="too old"):
            VERIFIER.verify(*signed, at_ms + moved)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("SendMessage", "PurgeQueue"), ("X-Amz-Expires=3600", "X-Amz-Expires=604800"), ("X-Amz-Expires=3600", "X-Amz-Expires=604801"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=0"), ("X-Amz-Expires=3600&", ""), ("X-Amz-Date=20", "X-Amz-Date=30"),
        ("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders="), ("X-Amz-Signature=", "X-Amz-Signature=0"), ("Action=", "More=1&Action="),
        ("X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Algorithm=none"), ("X-Amz-Date=", "X-Amz-Date=x&X-Amz-Date="),
        ("AKIDEXAMPLE", "OTHER"), ("eu-west-1%2Fsqs", "eu-west-1%2Fs3"),
    ],
)  # fmt: skip
def test_f32_a_url_is_signed_whole(was: str, becomes: str) -> None:
    (method, path, query, headers, body), at_ms = presign()
    assert was in query
    with pytest.raises(BadSignature):
        VERIFIER.verify(method, path, query.replace(was, becomes, 1), headers, body, at_ms)
    with pytest.raises(BadSignature):
        VERIFIER.verify(method, path, query, {b"host": b"elsewhere"}, body, at_ms)
    with pytest.raises(BadSignature):
        VERIFIER.verify("POST", path, query, headers, b"more", at_ms)


@given(st.text("XAmz-Signature=&Expires%2F10", max_size=80))
def test_any_query_is_a_signature_or_nothing(text: str) -> None:
    assert parse_presigned(text) is None


@given(st.text(max_size=80))
def test_any_header_is_a_credential_or_nothing(text: str) -> None:
    assert parse_authorization(text) is None or text.startswith("AWS4-HMAC-SHA256 ")
