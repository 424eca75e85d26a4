"""Adapter: where queues are served: a broker that is known by its Kafka address says so, as one of its configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from headrace.client.errors import headrace_error
from headrace.core.errors import ErrorKind, HeadraceError

CONFIG = "headrace.http.address"


def http_address(config: Mapping[str, Any], seconds: float) -> str:
    """HeadraceError: it does not tell."""
    admin = AdminClient({name: value for name, value in config.items() if name != "client.id"})
    try:
        found = admin.list_topics(timeout=seconds)
        broker = found.brokers[
            found.orig_broker_id if found.orig_broker_id in found.brokers else min(found.brokers)
        ]
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker.id))
        entry = next(iter(admin.describe_configs([resource]).values())).result(seconds).get(CONFIG)
    except KafkaException as problem:
        raise headrace_error(problem.args[0]) from None
    if entry is None or not entry.value:
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            "the broker does not tell its HTTP address",
            'Client(…, url="http://host:9324")',
        )
    scheme, _, rest = str(entry.value).partition("://")
    host, _, port = rest.rpartition(":")
    if host in ("0.0.0.0", "::", ""):
        host = str(broker.host)  # one that listens everywhere is where we have found it
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
