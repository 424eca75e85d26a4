"""A30: a broker that has not heard of its coordinator for half a minute goes on deciding, says so, and changes nothing."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from secured import ADMIN, PASSWORD, Secured
from webhook_endpoint import until

from headrace.cli.user_view import scram_records
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import EtcdServer, etcd_binary

pytestmark = [
    pytest.mark.client,
    pytest.mark.timeout(300),
    pytest.mark.skipif(etcd_binary() is None, reason="etcd is not installed"),
]


def seen(broker: BrokerProcess, path: str) -> str:
    try:
        with urllib.request.urlopen(broker.url + path, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as problem:
        return problem.read().decode()


def test_a30_rights_of_half_a_minute_ago_still_decide_and_can_not_be_changed(tmp_path: Path) -> None:
    etcd = EtcdServer(tmp_path / "etcd").start()
    try:
        with BrokerProcess(arguments=("--coordinator", f"etcd://{etcd.address}/prod")) as broker:
            secured = Secured(broker)
            secured.user()
            assert "as they were" not in seen(broker, "/readyz?verbose")
            etcd.pause()
            until(lambda: "users and rights are as they were" in seen(broker, "/readyz?verbose"))
            new = {"name": "late", "scram": scram_records("a word", 4096)}
            status, answer = secured.http(
                "POST", "/api/v1/security/users", new, user=ADMIN, password=PASSWORD
            )
            assert status >= 500, answer
            status, _ = secured.http("GET", "/api/v1/security/users", user=ADMIN, password=PASSWORD)
            assert status == 200, "who was known is known"
            status, _ = secured.http("GET", "/api/v1/security/users", user=ADMIN, password="guessed")
            assert status == 401, "and nobody else"
            etcd.resume()
            until(lambda: "as they were" not in seen(broker, "/readyz?verbose"))
    finally:
        etcd.stop()
