"""Command: configs of brokers as `cluster config` shows them."""

from __future__ import annotations

from typing import ClassVar

from confluent_kafka.admin import ConfigResource, ConfigSource  # type: ignore[attr-defined]

from headrace.cli.broker_link import BrokerLink
from headrace.cli.failure import Exit, Failure
from headrace.cli.output import Row, column


class ConfigRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cluster.config/v1"
    name: str
    value: str | None
    source: str
    """default, static (a setting of the broker), cluster or broker."""
    read_only: bool

    @property
    def is_default(self) -> bool:
        return self.source in ("default", "static")


COLUMNS = [
    column("NAME", "name"),
    column("VALUE", "value"),
    column("SOURCE", "source"),
    column("READ-ONLY", "read_only", wide=True),
]

_SOURCES = {
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "cluster",
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "broker",
    ConfigSource.STATIC_BROKER_CONFIG.value: "static",
}


def pick_broker(link: BrokerLink, broker: int | None) -> int:
    """The one that was named; else any, because what is said of the cluster is said of each."""
    known = sorted(link.admin.list_topics(timeout=link.timeout_s).brokers)
    if broker is None:
        return int(known[0])
    if broker not in known:
        raise Failure(Exit.NOT_FOUND, f"there is no broker {broker}", "headrace cluster nodes")
    return broker


def broker_configs(link: BrokerLink, broker: int) -> dict[str, ConfigRow]:
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    futures = link.admin.describe_configs([resource], request_timeout=link.timeout_s)
    found = link.answer(next(iter(futures.values())), f"broker {broker}")
    return {
        name: ConfigRow(
            name=name,
            value=None if entry.is_sensitive else entry.value,
            source=_SOURCES.get(entry.source, "default"),
            read_only=bool(entry.is_read_only),
        )
        for name, entry in found.items()
    }
