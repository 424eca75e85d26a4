"""Door: what each SQS action needs (A39), on the same resources as everything else: a queue is a group over its topics.

`{queue}` is the queue that QueueUrl or QueueName names, `{source}` and `{target}` those of SourceArn and DestinationArn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headrace.security.rights import (
    CLUSTER,
    GROUP,
    OWN,
    TOPIC,
    Rights,
    alter_configs,
    create,
    delete,
    describe,
    either,
    needs,
    read,
    write,
)

_SEND = needs(write(TOPIC, "topics of {queue}")).making(create(CLUSTER), create(TOPIC))
_SETTLE = needs(read(GROUP, "{queue}"))
_LOOK = needs(describe(GROUP, "{queue}"))
_CHANGE = needs(alter_configs(GROUP, "{queue}"))

RIGHTS: dict[str, Rights] = {
    "CreateQueue": needs(
        alter_configs(GROUP, "{queue}"),
        either(create(CLUSTER), create(TOPIC, "{queue}"), read(TOPIC, "{queue}")),
    ),
    "DeleteQueue": needs(delete(GROUP, "{queue}"), delete(TOPIC, "topics of {queue}")),
    "GetQueueUrl": _LOOK,
    "ListQueues": OWN.showing(describe(GROUP)),
    "GetQueueAttributes": _LOOK,
    "SetQueueAttributes": _CHANGE,
    "PurgeQueue": needs(delete(GROUP, "{queue}")),
    "TagQueue": _CHANGE,
    "UntagQueue": _CHANGE,
    "ListQueueTags": _LOOK,
    "ListDeadLetterSourceQueues": _LOOK,
    "AddPermission": _CHANGE,
    "RemovePermission": _CHANGE,
    "StartMessageMoveTask": needs(
        read(GROUP, "{source}"),
        read(TOPIC, "topics of {source}"),
        delete(GROUP, "{source}"),
        write(TOPIC, "topics of {target}"),
    ),
    "ListMessageMoveTasks": needs(describe(GROUP, "{source}")),
    "CancelMessageMoveTask": needs(
        read(GROUP, "source of {task}"),
        read(TOPIC, "topics of source of {task}"),
        delete(GROUP, "source of {task}"),
    ),
    "SendMessage": _SEND,
    "SendMessageBatch": _SEND,
    "ReceiveMessage": needs(read(GROUP, "{queue}"), read(TOPIC, "topics of {queue}")),
    "DeleteMessage": _SETTLE,
    "DeleteMessageBatch": _SETTLE,
    "ChangeMessageVisibility": _SETTLE,
    "ChangeMessageVisibilityBatch": _SETTLE,
}


class Naming(Protocol):
    """How a caller's names are understood (call.py)."""

    def inside(self, name: str) -> str | None: ...

    def name_of_arn(self, arn: str) -> str | None: ...


def named(parameters: Mapping[str, object], naming: Naming) -> dict[str, str]:
    """The names in an action's parameters, as the cluster knows them; what is missing or no text names nothing, and the action says so."""

    def text(key: str) -> str:
        value = parameters.get(key)
        return value if isinstance(value, str) else ""

    return {
        "queue": naming.inside(text("QueueName") or text("QueueUrl").rstrip("/").rpartition("/")[2]) or "",
        "source": naming.name_of_arn(text("SourceArn")) or "",
        "target": naming.name_of_arn(text("DestinationArn")) or "",
        "task": text("TaskHandle"),
    }
