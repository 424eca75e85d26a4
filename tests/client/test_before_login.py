"""P8: whatever is sent before a login, over TLS and plain, makes no traceback, tells nothing and keeps nobody else waiting for ever.

Frames are made as a walk through the states of a login: handshakes, tokens, versions, requests that are not heard yet, and the same cut short,
lengthened and with bits turned. `make security` sends EXAMPLES of them (20,000), `make test` 200.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import socket
import ssl
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from raw_client import RawClient, encode_request
from raw_login import log_in
from secured import ADMIN, PASSWORD, Secured

from headrace.security.certificates import Pair, issue, make_authority
from headrace.testing.local_broker import LocalBroker
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import encode
from headrace.wire.framing import RequestHeader
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.metadata import MetadataRequest
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest

pytestmark = [pytest.mark.client, pytest.mark.timeout(3600)]

FRAMES = int(os.environ.get("HEADRACE_SECURITY_EXAMPLES", "200"))
TOKENS = [
    b"n,,n=nobody,r=abc=2C", b"n,,n=nobody,r=abc", b"y,,n=nobody,r=", b"p=x,,n=a,r=b", b"c=biws,r=abc,p=AAAA", b"\0nobody\0wrong",
    b"n,,\x01auth=Bearer hr_x\x01\x01", b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01", b"\x01", b"", b"\xff" * 9000,
]  # fmt: skip
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "GSSAPI", "", "x" * 300]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """TLS and plain at one port."""
    directory = tmp_path_factory.mktemp("certificates")
    authority, own = (Pair(directory / f"{name}.pem", directory / f"{name}.key") for name in ("ca", "own"))
    make_authority(authority, "tests")
    issue(authority, own, "broker", ["localhost", "127.0.0.1"])
    settings = {"tls_cert": str(own.certificate), "tls_key": str(own.key), "allow_plain_without_tls": True}
    with LocalBroker(**settings) as running:
        yield Secured(running)  # type: ignore[arg-type]


def frame(chance: random.Random) -> bytes:
    kind = chance.randrange(6)
    if kind == 0:
        version = chance.randrange(5)
        return whole(ApiKey.API_VERSIONS, version, encode(ApiVersionsRequest("a", "1"), version))
    if kind == 1:
        version = chance.randrange(2)
        body = encode(SaslHandshakeRequest(chance.choice(MECHANISMS)), version)
        return whole(ApiKey.SASL_HANDSHAKE, version, body)
    if kind == 2:
        version = chance.randrange(3)
        body = encode(SaslAuthenticateRequest(token_of(chance)), version)
        return whole(ApiKey.SASL_AUTHENTICATE, version, body)
    if kind == 3:
        token = token_of(chance)  # as after a handshake of version 0
        return struct.pack(">i", len(token)) + token
    if kind == 4:
        key = chance.choice([*API, -1, 999])
        return whole(key, chance.randrange(-1, 16), chance.randbytes(chance.randrange(60)))
    return struct.pack(">i", chance.choice([-1, 0, 1, 10, 1 << 16, 1 << 20, 1 << 30])) + chance.randbytes(8)


def token_of(chance: random.Random) -> bytes:
    """Each time of somebody else: one who is guessed at again and again is answered ever more slowly."""
    return chance.choice(TOKENS).replace(b"nobody", b"nobody-%d" % chance.randrange(10**9))


def whole(key: int, version: int, body: bytes) -> bytes:
    try:
        return encode_request(RequestHeader(key, version, 7, "fuzz"), body)
    except (KeyError, ValueError):  # an API or a version that has no header of its own
        text = struct.pack(">hhih", key, version, 7, 4) + b"fuzz" + body
        return struct.pack(">i", len(text)) + text


def damaged(chance: random.Random, text: bytes) -> bytes:
    found = bytearray(text)
    match chance.randrange(5):
        case 0 if found:
            found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
        case 1:
            del found[chance.randrange(len(found) + 1) :]
        case 2:
            found += chance.randbytes(chance.randrange(20))
    return bytes(found)


def attack(port: int, chance: random.Random, *, tls: bool) -> int:
    """One connection with a few frames; how many were sent."""
    connection: socket.socket = socket.create_connection(("127.0.0.1", port), 60)
    sent = 0
    try:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = context.wrap_socket(connection)
        for _ in range(chance.randrange(1, 9)):
            connection.sendall(damaged(chance, frame(chance)))
            sent += 1
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):  # until it has taken all of them
            pass
    except OSError:
        pass  # closed on the way, as it should be
    finally:
        connection.close()
    return max(sent, 1)


@pytest.mark.parametrize("tls", [False, True])
def test_p8_frames_before_a_login(secured: Secured, caplog: pytest.LogCaptureFixture, tls: bool) -> None:
    port = secured.broker.kafka_port
    healthy = RawClient(port)
    log_in(healthy, ADMIN, PASSWORD)
    seeds = itertools.count()
    sent = 0
    with caplog.at_level(logging.ERROR), ThreadPoolExecutor(16) as pool:
        while sent < FRAMES // 2:
            chances = [random.Random(f"p8 {tls} {next(seeds)}") for _ in range(32)]
            sent += sum(pool.map(lambda chance: attack(port, chance, tls=tls), chances))
            assert healthy.call(ApiKey.METADATA, 9, MetadataRequest([])).brokers
        log_in(RawClient(port), ADMIN, PASSWORD)
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
