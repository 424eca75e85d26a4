"""Driver: a broker for somebody's own tests: in memory, on free ports, gone at the end.

from headrace.testing import LocalBroker

with LocalBroker() as broker, broker.client() as client:
    client.publish("orders", {"id": 7}).result()
"""

from __future__ import annotations

from typing import Any

from headrace.testing.broker_process import BrokerProcess


class LocalBroker(BrokerProcess):
    """`bootstrap` is its Kafka address, `url` the one for SQS and REST."""

    def __init__(self, *arguments: str) -> None:
        """`arguments` are flags of `headrace serve`."""
        super().__init__(arguments=("--ephemeral", *arguments), start_seconds=60.0)

    def __enter__(self) -> LocalBroker:
        self.start()
        return self

    def client(self, delivery: str = "at-least-once", **options: Any) -> Any:
        """A headrace.Client of this broker."""
        from headrace import Client

        return Client(self.bootstrap, delivery, **options)
