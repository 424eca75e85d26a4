"""A7 through the door: text of any shape costs what its length says, and strange digits are a refusal, not a failure (F22)."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


def cpu_ticks(broker: BrokerProcess) -> int:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def status(url: str, body: bytes | None = None) -> int:
    try:
        with urlopen(url, body, 30) as answer:
            return int(answer.status)
    except HTTPError as problem:
        return problem.code


def list_queues(broker: BrokerProcess, authorization: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", broker.http_port), 30) as client:
        client.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"
            b"Content-Type: application/x-amz-json-1.0\r\n"
            b"Authorization: " + authorization + b"\r\nContent-Length: 2\r\n\r\n{}"
        )
        return client.recv(4096)


def test_an_authorization_header_costs_its_length_f22(broker: BrokerProcess) -> None:
    """32 KB of `Credential=` cost half a CPU second each: ten of them would be five. CPU time of the broker, not of the wall."""
    hostile = (b"Credential=" * 2960)[:32_000]
    assert b" 200 " in list_queues(broker, hostile)
    before = cpu_ticks(broker)
    for _ in range(10):
        assert b" 200 " in list_queues(broker, hostile)
    assert cpu_ticks(broker) - before < 200


def test_the_region_is_still_read_f22(broker: BrokerProcess) -> None:
    header = b"AWS4-HMAC-SHA256 Credential=AKID/20260101/eu-north-1/sqs/aws4_request, SignedHeaders=host, Signature=0"
    assert b" 200 " in list_queues(broker, header)


@pytest.mark.parametrize("number", ["²", "٣", "１"])
def test_strange_digits_are_refused_f22(broker: BrokerProcess, number: str) -> None:
    assert status(f"{broker.url}/v1/topics?{urlencode({'limit': number})}") < 500
    form = urlencode({"Action": "SendMessageBatch", f"SendMessageBatchRequestEntry.{number}.Id": "a"})
    assert status(broker.url, form.encode()) == 400
