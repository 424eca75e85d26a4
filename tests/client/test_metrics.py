"""F55: /metrics is complete, and is what both parsers of the trade accept."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from headrace import Client
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

EXPECTED = {
    "process_cpu_seconds", "process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds",
    "process_max_fds", "process_start_time_seconds", "python_gc_collections", "mq_eventloop_lag_seconds",
    "mq_fsync_duration_seconds", "mq_coordinator_up", "mq_http_connections", "mq_http_accepted_connections",
}  # fmt: skip


def scrape(broker: BrokerProcess, accept: str) -> tuple[str, str]:
    request = urllib.request.Request(f"{broker.url}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answered:
        return answered.headers["Content-Type"], answered.read().decode()


def test_f55_metrics_are_complete_and_valid(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.bootstrap) as client:
        client.publish(topic, "x").result(60)
    kind, text = scrape(broker, "application/openmetrics-text; version=1.0.0, text/plain;q=0.5")
    assert kind.startswith("application/openmetrics-text")
    families = {family.name: family for family in openmetrics(text)}
    assert not EXPECTED - set(families)
    assert families["mq_http_connections"].type == "gauge"
    assert families["mq_coordinator_up"].samples[0].value == 1
    counts = [
        one.value for one in families["mq_fsync_duration_seconds"].samples if one.name.endswith("_count")
    ]
    assert counts[0] > 0
    kind, text = scrape(broker, "*/*")
    assert kind.startswith("text/plain")
    assert not EXPECTED - {family.name for family in prometheus(text)}
