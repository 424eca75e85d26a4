"""Public: brokers for tests of one's own, with a clock and faults; simulated network and disk, checkers.

Names are loaded when they are asked for: pytest imports this package in every run of everybody who has Headrace installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.broker_process import BrokerProcess
    from headrace.testing.expecting import eventually, eventually_async, received_exactly
    from headrace.testing.local_broker import LocalBroker, LocalCluster

_HOMES = {
    "BrokerProcess": "broker_process",
    "LocalBroker": "local_broker",
    "LocalCluster": "local_broker",
    "eventually": "expecting",
    "eventually_async": "expecting",
    "received_exactly": "expecting",
}

__all__ = [
    "BrokerProcess",
    "LocalBroker",
    "LocalCluster",
    "eventually",
    "eventually_async",
    "received_exactly",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
