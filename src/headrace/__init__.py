"""Headrace: a distributed message queue. One durable log; Kafka, SQS, REST and Spark are its doors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.client.client import Client
    from headrace.client.message import Delivery, Message, Receipt
    from headrace.client.subscription import Subscription
    from headrace.core.errors import HeadraceError

__version__ = "0.1.0"

__all__ = ["Client", "Delivery", "HeadraceError", "Message", "Receipt", "Subscription"]

_HOMES = {
    "Client": "headrace.client.client",
    "Delivery": "headrace.client.message",
    "HeadraceError": "headrace.core.errors",
    "Message": "headrace.client.message",
    "Receipt": "headrace.client.message",
    "Subscription": "headrace.client.subscription",
}


def __getattr__(name: str) -> Any:
    """Imported when first used: `import headrace` stays quick for the broker and the command line."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
