"""Door: queue attributes as SQS knows them, and what they mean to the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.units import is_digits
from headrace.http.sqs.call import SqsCall
from headrace.queues.commands import Counts
from headrace.queues.config import SQS_MAX_LEASE_MS, QueueConfig, fifo_queue, standard_queue
from headrace.security.rights import TOPIC, Operation, write

DEFAULTS = {
    "VisibilityTimeout": "30",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "DelaySeconds": "0",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
}
_RANGES = {
    "VisibilityTimeout": (0, 43_200),
    "MaximumMessageSize": (1_024, 1_048_576),
    "MessageRetentionPeriod": (60, 1_209_600),
    "DelaySeconds": (0, 900),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
}
FIFO_DEFAULTS = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
_FIFO_ONLY = ("ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")
_BOOLEANS = ("FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled")
_CHOICES = {
    **dict.fromkeys(_BOOLEANS, ("true", "false")),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
_TEXTS = ("Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId")
SETTABLE = (*_RANGES, *_CHOICES, *_TEXTS)
COMPUTED = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
)
MAX_RECEIVES = 1_000
MAX_SOURCE_ARNS = 10
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""A message may have 1 MiB, and messages that are sent together are one batch with headers of our own."""


def checked(call: SqsCall, given: Mapping[str, object], queue: str) -> dict[str, str]:
    """The attributes a caller may set on this queue, as text and as they are kept; raises AWS's errors."""
    is_fifo = queue.endswith(".fifo")
    attributes: dict[str, str] = {}
    for name, value in given.items():
        if name not in SETTABLE:
            raise HeadraceError(ErrorKind.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name}.")
        if not isinstance(value, str):
            raise _invalid(name)
        if name in _FIFO_ONLY and not is_fifo:
            raise HeadraceError(
                ErrorKind.INVALID_ATTRIBUTE_NAME,
                f"You can specify the {name} only when FifoQueue is set to true.",
            )
        if name in _BOOLEANS:
            value = value.lower()
        if name in _RANGES:
            _check_number(call, name, value)
        elif name in _CHOICES:
            if value not in _CHOICES[name]:
                raise _invalid(name)
        elif name == "Policy" and value:
            if not isinstance(_document(value), dict):
                raise _invalid(name)
        elif name == "RedriveAllowPolicy" and value:
            if None in (_allowed_sources(call, value) or ()):
                raise _invalid(name)
        elif name == "RedrivePolicy" and value:
            value = _checked_redrive_policy(call, queue, value)
        attributes[name] = value
    return attributes


def check_together(attributes: Mapping[str, str]) -> None:
    """What one attribute allows another."""
    if (
        attributes.get("FifoThroughputLimit") == "perMessageGroupId"
        and attributes.get("DeduplicationScope") != "messageGroup"
    ):
        raise HeadraceError(
            ErrorKind.INVALID_ATTRIBUTE_VALUE,
            "The perMessageGroupId value of FifoThroughputLimit is allowed only when DeduplicationScope is messageGroup.",
        )


def _check_number(call: SqsCall, name: str, value: str) -> None:
    low, high = _RANGES[name]
    if not is_digits(value) or len(value) > 15:
        raise _invalid(name)
    # Longer delays are welcome here; AWS has no such thing, so a strict server refuses them.
    open_ended = name == "DelaySeconds" and not call.settings.strict
    if not low <= int(value) <= (10**12 if open_ended else high):
        raise _invalid(name)


def _invalid(name: str) -> HeadraceError:
    return HeadraceError(ErrorKind.INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}.")


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _redrive_policy(call: SqsCall, text: str) -> tuple[str, int] | None:
    """(dead-letter queue, after how many receives) of a policy; None when it is not one. A queue of another region is called nothing."""
    try:
        policy = json.loads(text)
        target = call.name_of_arn(str(policy["deadLetterTargetArn"]))
        return target or "", int(policy["maxReceiveCount"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _checked_redrive_policy(call: SqsCall, queue: str, text: str) -> str:
    """As AWS shows it: whatever the order and the types of what was given."""

    def refused(reason: str, kind: type[HeadraceError] = HeadraceError) -> HeadraceError:
        detail = f"Value {text} for parameter RedrivePolicy is invalid. Reason: {reason}"
        return kind(ErrorKind.INVALID_PARAMETER, detail)

    policy = _redrive_policy(call, text)
    if policy is None:
        raise refused("Redrive policy is not a valid JSON map with deadLetterTargetArn and maxReceiveCount.")
    name, count = policy
    if not 1 <= count <= MAX_RECEIVES:
        raise refused(
            f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to {MAX_RECEIVES} both inclusive."
        )
    target = call.queues.find(name)
    _need_may_write(call, name, (name,) if target is None else target.topics)
    if target is None:
        raise refused("Dead letter target does not exist.", Unknown)
    if name.endswith(".fifo") != queue.endswith(".fifo"):
        raise refused("Dead-letter queue must be same type of queue as the source.")
    allowed = _allowed_sources(call, target.attributes.get("RedriveAllowPolicy", ""))
    if allowed is not None and queue not in allowed:
        raise refused("The dead-letter queue's RedriveAllowPolicy does not allow this source queue.")
    kept = {"deadLetterTargetArn": _document(text)["deadLetterTargetArn"], "maxReceiveCount": count}
    return json.dumps(kept, separators=(",", ":"))


def _need_may_write(call: SqsCall, name: str, topics: Sequence[str]) -> None:
    """Whoever names a dead-letter queue writes to it, with whatever its messages are. The same words whether it is there or not (A44)."""
    access = call.request.access
    if access is not None and any(access.refuses(Operation.WRITE, TOPIC, topic) for topic in topics):
        raise HeadraceError(ErrorKind.ACCESS_DENIED, f"needs {write(TOPIC)} {name}")


def _allowed_sources(call: SqsCall, text: str) -> set[str | None] | None:
    """The queues that a RedriveAllowPolicy lets in, with None among them for one of another region; None for all. Raises when it is
    not one."""
    if not text:
        return None
    policy = _document(text)
    permission = policy.get("redrivePermission") if isinstance(policy, dict) else None
    arns = policy.get("sourceQueueArns") if isinstance(policy, dict) else None
    if permission in ("allowAll", "denyAll") and arns is None:
        return None if permission == "allowAll" else set()
    if permission == "byQueue" and isinstance(arns, list) and 1 <= len(arns) <= MAX_SOURCE_ARNS:
        return {call.name_of_arn(str(arn)) for arn in arns}
    raise _invalid("RedriveAllowPolicy")


def new_config(call: SqsCall, queue: str, attributes: Mapping[str, str]) -> QueueConfig:
    """What the attributes of a queue that is made mean to the engine."""
    make = fifo_queue if queue.endswith(".fifo") else standard_queue
    return make(**_engine_changes(call, attributes))


def changed_config(call: SqsCall, config: QueueConfig, changed: Mapping[str, str]) -> QueueConfig:
    """What was given changes, and nothing else: REST and the command may have set what SQS has no word for."""
    return replace(config, **_engine_changes(call, changed))


def _engine_changes(call: SqsCall, given: Mapping[str, str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if call.settings.strict:
        changes["max_lease_ms"] = SQS_MAX_LEASE_MS
    if "VisibilityTimeout" in given:
        changes["visibility_ms"] = int(given["VisibilityTimeout"] or DEFAULTS["VisibilityTimeout"]) * 1000
    if "RedrivePolicy" in given:
        changes["dead_letter"], changes["max_deliveries"] = _redrive_policy(call, given["RedrivePolicy"]) or (
            "",
            0,
        )
    if "DeduplicationScope" in given:
        changes["dedup_per_group"] = given["DeduplicationScope"] == "messageGroup"
    return changes


def topic_configs(attributes: Mapping[str, str]) -> dict[str, str]:
    """What the attributes mean to the topic under the queue."""
    seconds = int(attributes.get("MessageRetentionPeriod", DEFAULTS["MessageRetentionPeriod"]))
    return {"retention.ms": str(seconds * 1000), "max.message.bytes": str(MAX_BATCH_BYTES)}


def _of_engine(call: SqsCall, spec: QueueSpec) -> dict[str, str]:
    """What the engine does, whoever told it to."""
    config = spec.queue_config
    found = {
        "VisibilityTimeout": str(config.visibility_ms // 1000),
        "DelaySeconds": str(spec.default_delay_ms // 1000),
    }
    if config.dead_letter and config.max_deliveries:
        given = spec.attributes.get("RedrivePolicy", "")
        if _redrive_policy(call, given) != (config.dead_letter, config.max_deliveries):
            policy = {
                "deadLetterTargetArn": call.arn(config.dead_letter),
                "maxReceiveCount": config.max_deliveries,
            }
            given = json.dumps(policy)
        found["RedrivePolicy"] = given
    return found


async def shown(call: SqsCall, spec: QueueSpec, names: list[str]) -> dict[str, str]:
    """What GetQueueAttributes answers; unset attributes have their defaults."""
    everything = "All" in names
    for name in names:
        if name != "All" and name not in SETTABLE and name not in COMPUTED:
            raise HeadraceError(ErrorKind.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name}.")
    is_fifo = spec.name.endswith(".fifo")
    values = {
        **DEFAULTS,
        **(FIFO_DEFAULTS if is_fifo else {}),
        **{name: value for name, value in spec.attributes.items() if value and name != "RedrivePolicy"},
        **_of_engine(call, spec),
    }
    counts: list[Counts] = []
    if everything or any(name.startswith("Approximate") for name in names):
        counts = [count for _, count in (await call.queues.stats(spec)).counts]
    values |= {
        "ApproximateNumberOfMessages": str(sum(count.visible for count in counts)),
        "ApproximateNumberOfMessagesNotVisible": str(sum(count.in_flight for count in counts)),
        "ApproximateNumberOfMessagesDelayed": str(sum(count.delayed for count in counts)),
        "CreatedTimestamp": str(spec.created_ms // 1000),
        "LastModifiedTimestamp": str((spec.changed_ms or spec.created_ms) // 1000),
        "QueueArn": call.arn(spec.name),
    }
    return {name: value for name, value in values.items() if everything or name in names}
