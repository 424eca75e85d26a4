"""Headrace: a distributed message queue. One durable log; Kafka, SQS, REST and Spark are its doors.

What is public here is imported when it is first used, so `import headrace` stays quick for the broker and the command
line. Its types are in __init__.pyi.
"""

from __future__ import annotations

__version__ = "0.1.0"

_HOMES = {
    "Client": "headrace.client.client",
    "Delivery": "headrace.client.message",
    "HeadraceError": "headrace.core.errors",
    "Message": "headrace.client.message",
    "QueueMessage": "headrace.client.worker",
    "Receipt": "headrace.client.message",
    "Reject": "headrace.client.worker",
    "Subscription": "headrace.client.subscription",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
