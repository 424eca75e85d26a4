"""Command: `headrace generate grafana-dashboard`."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from headrace.cli.generated import GeneratedRow, show
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape

SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT = 8, 8
"""Three beside each other: Grafana's grid has 24 columns."""


class Panel(NamedTuple):
    title: str
    unit: str
    queries: dict[str, str]
    """Legend -> expression."""
    says: str = ""
    stat: bool = False


ROWS: dict[str, list[Panel]] = {
    "Health": [
        Panel("Brokers", "none", {"registered": "max(kafka_brokers)", "answering": 'sum(up{job="$job"})'}, stat=True),
        Panel("Checks that fail", "none", {"{{instance}} {{check}}": 'mq_health{job="$job"} > 0'}, "1: in trouble; 2: keeps the broker from serving. /readyz?verbose says why.", stat=True),
        Panel("Partitions in trouble", "none", {"under-replicated": "sum(kafka_server_replicamanager_underreplicatedpartitions)", "offline": "sum(kafka_server_replicamanager_offlinereplicacount)"}, stat=True),
    ],
    "Streams": [
        Panel("Messages in", "cps", {"{{topic}}": 'topk(10, sum by (topic) (rate(kafka_server_brokertopicmetrics_messagesin_total{job="$job"}[$__rate_interval])))'}),
        Panel("Bytes in and out", "Bps", {"in": 'sum(rate(kafka_server_brokertopicmetrics_bytesin_total{job="$job"}[$__rate_interval]))', "out": 'sum(rate(kafka_server_brokertopicmetrics_bytesout_total{job="$job"}[$__rate_interval]))'}),
        Panel("Lag", "none", {"{{consumergroup}}": "topk(10, max by (consumergroup) (sum by (consumergroup, instance) (kafka_consumergroup_lag_sum)))"}, "Messages behind. headrace group explain says why."),
    ],
    "Queues": [
        Panel("Messages", "none", {"{{queue}} {{state}}": "topk(20, sum by (queue, state) (mq_queue_messages))"}),
        Panel("Oldest message", "s", {"{{queue}}": "topk(10, max by (queue) (mq_queue_oldest_age_seconds))"}),
        Panel("Dead letters", "none", {"{{queue}}": "sum by (queue) (mq_dlq_messages) > 0"}, "headrace dlq list"),
    ],
    "Requests": [
        Panel("Kafka requests", "reqps", {"{{api}}": 'topk(10, sum by (api) (rate(mq_requests_total{job="$job"}[$__rate_interval])))'}),
        Panel("Time of HTTP requests, p99", "s", {"{{api}}": 'topk(10, histogram_quantile(0.99, sum by (api, le) (rate(mq_request_duration_seconds_bucket{job="$job"}[$__rate_interval]))))'}),
        Panel("Answers by status", "reqps", {"{{status}}": 'sum by (status) (rate(mq_http_responses_total{job="$job"}[$__rate_interval]))'}),
    ],
    "The machine": [
        Panel("CPU, of one core", "percentunit", {"{{instance}}": 'rate(process_cpu_seconds_total{job="$job"}[$__rate_interval])'}, "A broker is one event loop: at 1 it is full, and another broker is the remedy."),
        Panel("Sync to disk, p99", "s", {"{{instance}}": 'histogram_quantile(0.99, sum by (instance, le) (rate(mq_fsync_duration_seconds_bucket{job="$job"}[$__rate_interval])))'}),
        Panel("Late event loop", "s", {"{{instance}}": 'mq_eventloop_lag_seconds{job="$job"}'}),
        Panel("Memory", "bytes", {"{{instance}}": 'process_resident_memory_bytes{job="$job"}'}),
        Panel("Disk left", "bytes", {"{{instance}}": 'mq_disk_free_bytes{job="$job"}'}),
        Panel("Connections", "none", {"{{instance}} Kafka": 'mq_connections{job="$job"}', "{{instance}} HTTP": 'mq_http_connections{job="$job"}'}),
    ],
}  # fmt: skip


@leaf(GeneratedRow, Shape.ONE)
def command(run: Invocation) -> None:
    """Write a dashboard for Grafana, over metrics that brokers have. Import it, and choose your Prometheus."""
    show(run, "headrace-dashboard.json", json.dumps(dashboard(), indent=1) + "\n")


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}})
        top += 1
        for place, panel in enumerate(row):
            across, down = place % 3, place // 3
            grid = {"x": across * WIDTH, "y": top + down * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append(_drawn(panel, grid))
        top += HEIGHT * -(-len(row) // 3)
    for number, drawn in enumerate(panels, 1):
        drawn["id"] = number
    return {
        "title": "Headrace",
        "uid": "headrace",
        "tags": ["headrace"],
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _job()]},
        "panels": panels,
    }


def _drawn(panel: Panel, grid: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "expr": expression, "legendFormat": legend, "datasource": SOURCE}
        for number, (legend, expression) in enumerate(panel.queries.items())
    ]
    return {
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "gridPos": grid,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _job() -> dict[str, Any]:
    return {
        "name": "job",
        "label": "Job",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(mq_build_info, job)",
        "refresh": 1,
        "current": {"text": "headrace", "value": "headrace"},
    }
