"""Command: `headrace generate alerts`."""

from __future__ import annotations

from typing import NamedTuple

from headrace.cli.generated import GeneratedRow, show
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


class Alert(NamedTuple):
    name: str
    expression: str
    lasts: str
    severity: str
    says: str


ALERTS = [
    Alert("HeadraceDown", 'up{job="headrace"} == 0', "1m", "critical", "{{ $labels.instance }} does not answer"),
    Alert("HeadraceNotReady", "mq_health == 2", "1m", "critical", "{{ $labels.instance }}: {{ $labels.check }} keeps it from serving (/readyz?verbose)"),
    Alert("HeadraceInTrouble", "mq_health == 1", "10m", "warning", "{{ $labels.instance }}: {{ $labels.check }} is in trouble (/readyz?verbose)"),
    Alert("HeadraceUnderReplicated", "kafka_server_replicamanager_underreplicatedpartitions > 0", "5m", "warning", "{{ $value }} partitions on {{ $labels.instance }} have too few copies"),
    Alert("HeadraceNoController", "sum(kafka_controller_kafkacontroller_activecontrollercount) != 1", "2m", "critical", "there is not exactly one controller"),
    Alert("HeadraceDiskLow", "mq_disk_free_bytes < 5e9", "5m", "warning", "{{ $labels.instance }} has {{ $value | humanize1024 }}B left"),
    Alert("HeadraceGroupBehind", "sum by (consumergroup) (kafka_consumergroup_lag_sum) > 100000", "15m", "warning", "{{ $labels.consumergroup }} is {{ $value }} messages behind (headrace group explain)"),
    Alert("HeadraceQueueOld", "mq_queue_oldest_age_seconds > 3600", "15m", "warning", "{{ $labels.queue }} has a message that waits since {{ $value | humanizeDuration }}"),
    Alert("HeadraceDeadLetters", "mq_dlq_messages > 0", "5m", "warning", "{{ $labels.queue }} has dead letters (headrace dlq list)"),
    Alert("HeadraceUnexpectedErrors", "increase(mq_unexpected_errors_total[15m]) > 0", "0m", "warning", "{{ $labels.instance }}: an error that nobody foresaw, in {{ $labels.where }}; worth a bug report"),
    Alert("HeadraceSlowLoop", "mq_eventloop_lag_seconds > 1", "5m", "warning", "{{ $labels.instance }} is late by {{ $value }} s"),
    Alert("HeadraceOpenToNetwork", "mq_security_open_to_network == 1", "0m", "critical", "everybody who can reach {{ $labels.instance }} can read and write everything"),
]  # fmt: skip


@leaf(GeneratedRow, Shape.ONE)
def command(run: Invocation) -> None:
    """Write alerting rules for Prometheus, over metrics that brokers have. The limits are a beginning: change them to yours."""
    lines = ["groups:", "  - name: headrace", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {alert.expression}",
            f"        for: {alert.lasts}",
            f"        labels: {{severity: {alert.severity}}}",
            f"        annotations: {{summary: '{alert.says}'}}",
        ]
    show(run, "headrace-alerts.yml", "\n".join(lines) + "\n")
