"""Door: the SQS actions about queues themselves."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.sqs.attributes import (
    changed_config,
    check_together,
    checked,
    new_config,
    shown,
    topic_configs,
)
from headrace.http.sqs.call import SqsCall, invalid, queue_name_problem
from headrace.http.sqs.policies import check_policy
from headrace.security.rights import GROUP

PURGE_INTERVAL_MS = 60_000
DELETED_INTERVAL_MS = 60_000
MAX_TAGS = 50
MAX_PERMISSION_ACTIONS = 7


async def create_queue(call: SqsCall) -> dict[str, object]:
    name = call.text("QueueName")
    problem = queue_name_problem(name)
    if problem is not None:
        raise invalid(problem)
    given = call.get("Attributes", dict, {})
    is_fifo = name.endswith(".fifo")
    wants_fifo = str(given.get("FifoQueue", "")).lower() == "true"
    if is_fifo and not wants_fifo:
        raise invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
    if wants_fifo and not is_fifo:
        raise invalid("The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
                      "must end with .fifo suffix and be 1 to 80 in length.")  # fmt: skip
    name = _name_inside(call, name)
    attributes = checked(call, given, name)
    check_together(attributes)
    if "Policy" in attributes:
        check_policy(call, name, attributes["Policy"])
    tags = _tags(call.get("tags", dict, {}))
    existing = call.queues.find(name)
    if existing is not None:
        return await _existing(call, existing, attributes)
    now_ms = call.broker.runtime.clock.wall_ms()
    if call.settings.strict and now_ms - call.broker.catalog.deleted_ms(name) < DELETED_INTERVAL_MS:
        raise HeadraceError(
            ErrorKind.QUEUE_DELETED_RECENTLY,
            "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
        )
    spec = with_config(
        QueueSpec(
            name=name,
            id=call.broker.new_uuid(),
            topics=(name,),
            attributes=attributes,
            tags=tags,
            default_delay_ms=int(attributes.get("DelaySeconds", "0")) * 1000,
            created_ms=now_ms,
            changed_ms=now_ms,
        ),
        new_config(call, name, attributes),
    )
    try:
        await call.broker.catalog.create(spec, topic_configs=topic_configs(attributes))
    except HeadraceError as refusal:
        if refusal.kind is not ErrorKind.QUEUE_ALREADY_EXISTS:
            raise
        return await _existing(call, call.broker.catalog.spec(name), attributes)
    return {"QueueUrl": call.queue_url(name)}


def _name_inside(call: SqsCall, name: str) -> str:
    inside = call.inside(name)
    if inside is None:
        raise invalid(
            f"Value {name} for parameter QueueName is invalid. Reason: regions are kept apart here (--sqs-regions separate), and the region "
            f"{call.region} can't have a queue of this name: a region is called as AWS calls them, and no queue of another region than "
            f"{call.settings.regions.own} is called fifo."
        )
    return inside


async def _existing(call: SqsCall, spec: QueueSpec, attributes: dict[str, str]) -> dict[str, object]:
    have = await shown(call, spec, ["All"])
    for name, value in attributes.items():
        if have.get(name) != value:
            raise HeadraceError(
                ErrorKind.QUEUE_ALREADY_EXISTS,
                f"A queue already exists with the same name and a different value for attribute {name}",
            )
    return {"QueueUrl": call.queue_url(spec.name)}


async def delete_queue(call: SqsCall) -> dict[str, object]:
    await call.broker.catalog.delete(call.queue().name)
    return {}


async def get_queue_url(call: SqsCall) -> dict[str, object]:
    return {"QueueUrl": call.queue_url(call.named(call.text("QueueName")).name)}


async def list_queues(call: SqsCall) -> dict[str, object]:
    await call.broker.latest.news()  # what is missing from a list tells nobody that it is missing (F34)
    prefix = call.text("QueueNamePrefix", "")
    names = [
        spec.name
        for spec in call.broker.catalog.all()
        if spec.kind == "queue"
        and call.has(spec.name)
        and call.shown(spec.name).startswith(prefix)
        and call.request.sees(GROUP, spec.name)
    ]
    return _page(call, "QueueUrls", [call.queue_url(name) for name in names])


def _page(call: SqsCall, key: str, urls: list[str]) -> dict[str, object]:
    limit = call.number("MaxResults", 1, 1000, None)
    start = 0
    token = call.text("NextToken", "")
    if token:
        if not re.fullmatch(r"[0-9]{1,9}", token):
            raise invalid("Invalid or expired next token.")
        start = int(token)
    shown_urls = urls[start : start + (limit or 1000)]
    answer: dict[str, object] = {key: shown_urls} if shown_urls else {}
    if start + len(shown_urls) < len(urls) and limit is not None:
        answer["NextToken"] = str(start + len(shown_urls))
    return answer


async def get_queue_attributes(call: SqsCall) -> dict[str, object]:
    spec = call.queue()
    names = call.texts("AttributeNames", [])
    attributes = await shown(call, spec, names) if names else {}
    return {"Attributes": attributes} if attributes else {}


async def set_queue_attributes(call: SqsCall) -> dict[str, object]:
    spec = call.queue()
    is_fifo = spec.name.endswith(".fifo")
    given = call.get("Attributes", dict)
    changed = checked(call, given, spec.name)
    if "Policy" in changed:
        check_policy(call, spec.name, changed["Policy"])
    if changed.get("FifoQueue", "") not in ("", "true" if is_fifo else "false"):
        raise HeadraceError(ErrorKind.INVALID_ATTRIBUTE_NAME, "The FifoQueue attribute can't be changed.")
    attributes = {**spec.attributes, **changed}
    check_together(attributes)
    delay_ms = (
        int(changed["DelaySeconds"] or "0") * 1000 if "DelaySeconds" in changed else spec.default_delay_ms
    )
    await call.broker.catalog.change(
        spec.name,
        attributes=attributes,
        config=with_config(spec, changed_config(call, spec.queue_config, changed)).config,
        default_delay_ms=delay_ms,
    )
    if "MessageRetentionPeriod" in given:
        await call.broker.catalog.configure_topic(spec, topic_configs(attributes))
    return {}


async def purge_queue(call: SqsCall) -> dict[str, object]:
    spec = call.queue()
    try:
        await call.queues.purge(spec, PURGE_INTERVAL_MS)
    except HeadraceError as refusal:
        if refusal.kind is not ErrorKind.PURGE_QUEUE_IN_PROGRESS:
            raise
        text = f"Only one PurgeQueue operation on {call.shown(spec.name)} is allowed every {PURGE_INTERVAL_MS // 1000} seconds."
        raise HeadraceError(refusal.kind, text) from None
    return {}


async def tag_queue(call: SqsCall) -> dict[str, object]:
    spec = call.queue()
    tags = {**spec.tags, **_tags(call.get("Tags", dict))}
    if len(tags) > MAX_TAGS:
        raise invalid(f"Too many tags added for queue {call.shown(spec.name)}.")
    await call.broker.catalog.change(spec.name, tags=tags)
    return {}


async def untag_queue(call: SqsCall) -> dict[str, object]:
    spec = call.queue()
    doomed = set(call.texts("TagKeys"))
    await call.broker.catalog.change(
        spec.name, tags={key: value for key, value in spec.tags.items() if key not in doomed}
    )
    return {}


async def list_queue_tags(call: SqsCall) -> dict[str, object]:
    tags = call.queue().tags
    return {"Tags": tags} if tags else {}


def _tags(given: dict[str, str]) -> dict[str, str]:
    for key, value in given.items():
        if not isinstance(value, str) or not 1 <= len(key) <= 128 or len(value) > 256:
            raise invalid("Tag keys have 1 to 128 characters, values at most 256.")
    return given


async def list_dead_letter_source_queues(call: SqsCall) -> dict[str, object]:
    target = call.queue().name
    names = [
        spec.name
        for spec in call.broker.catalog.all()
        if spec.queue_config.dead_letter == target
        and call.has(spec.name)
        and call.request.sees(GROUP, spec.name)
    ]
    answer = _page(call, "queueUrls", [call.queue_url(name) for name in names])
    return {"queueUrls": [], **answer}


async def add_permission(call: SqsCall) -> dict[str, object]:
    """A42: a statement of the queue's policy, and so rights that count at every door."""
    spec = call.queue()
    label = call.text("Label")
    accounts, actions = call.texts("AWSAccountIds"), call.texts("Actions")
    if len(actions) > MAX_PERMISSION_ACTIONS:
        raise HeadraceError(
            ErrorKind.OVER_LIMIT,
            f"{len(actions)} Actions were found, maximum allowed is {MAX_PERMISSION_ACTIONS}.",
        )
    policy = _policy(call, spec)
    if any(statement.get("Sid") == label for statement in policy["Statement"]):
        raise invalid(f"Value {label} for parameter Label is invalid. Reason: Already exists.")
    policy["Statement"].append(
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": [f"arn:aws:iam::{account}:root" for account in accounts]},
            "Action": [f"SQS:{action}" for action in actions],
            "Resource": call.arn(spec.name),
        }
    )
    await _store_policy(call, spec, policy)
    return {}


async def remove_permission(call: SqsCall) -> dict[str, object]:
    spec = call.queue()
    label = call.text("Label")
    policy = _policy(call, spec)
    left = [statement for statement in policy["Statement"] if statement.get("Sid") != label]
    if len(left) == len(policy["Statement"]):
        raise invalid(f"Value {label} for parameter Label is invalid. Reason: can't find label.")
    await _store_policy(call, spec, {**policy, "Statement": left})
    return {}


def _policy(call: SqsCall, spec: QueueSpec) -> dict[str, Any]:
    empty: dict[str, object] = {
        "Version": "2012-10-17",
        "Id": f"{call.shown(spec.name)}/policy",
        "Statement": [],
    }
    try:
        policy = msgspec.json.decode(spec.attributes.get("Policy") or "null")
    except msgspec.DecodeError:
        return empty
    return policy if isinstance(policy, dict) and isinstance(policy.get("Statement"), list) else empty


async def _store_policy(call: SqsCall, spec: QueueSpec, policy: dict[str, object]) -> None:
    text = msgspec.json.encode(policy).decode() if policy["Statement"] else ""
    check_policy(call, spec.name, text)
    await call.broker.catalog.change(spec.name, attributes={**spec.attributes, "Policy": text})
