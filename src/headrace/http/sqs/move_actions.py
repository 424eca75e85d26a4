"""Door: StartMessageMoveTask, ListMessageMoveTasks and CancelMessageMoveTask: redrive as SQS knows it."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error

import msgspec

from headrace.broker.queueing.moves.move_tasks import MoveTask
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.sqs.call import SqsCall, invalid

MAX_RATE = 500


async def start_message_move_task(call: SqsCall) -> dict[str, object]:
    source = call.queue_of_arn(call.text("SourceArn"))
    destination = call.text("DestinationArn", "")
    rate = call.number("MaxNumberOfMessagesPerSecond", 1, MAX_RATE, 0)
    target = call.queue_of_arn(destination).name if destination else ""
    if not any(spec.queue_config.dead_letter == source.name for spec in call.broker.catalog.all()):
        raise invalid("Source queue must be configured as a Dead Letter Queue.")
    if target == source.name:
        raise invalid("Source queue and destination queue must be different.")
    if not target:
        call.broker.standing.need_named(call.request.access)
    owner = call.broker.standing.of(call.request.access)._asdict()
    task = await call.broker.moves.start(
        MoveTask(id="", source=source.name, destination=target, rate=rate, **owner)
    )
    return {"TaskHandle": _handle(call, task)}


async def list_message_move_tasks(call: SqsCall) -> dict[str, object]:
    source = call.queue_of_arn(call.text("SourceArn"))
    limit = call.number("MaxResults", 1, 10, 1)
    return {"Results": [_shown(call, task) for task in call.broker.moves.tasks(source.name)[:limit]]}


async def cancel_message_move_task(call: SqsCall) -> dict[str, object]:
    task_id = _task_id(call.text("TaskHandle"))
    known = call.broker.moves.find(task_id)
    if known is not None and not call.has(known.source):
        raise HeadraceError(ErrorKind.RESOURCE_NOT_FOUND, "The task handle does not name a task.")
    task = await call.broker.moves.cancel(task_id)
    return {"ApproximateNumberOfMessagesMoved": task.moved}


def _shown(call: SqsCall, task: MoveTask) -> dict[str, object]:
    shown: dict[str, object] = {
        "Status": task.status,
        "SourceArn": call.arn(task.source),
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.to_move,
        "StartedTimestamp": task.started_ms,
    }
    if task.status == "RUNNING":
        shown["TaskHandle"] = _handle(call, task)
    if task.destination:
        shown["DestinationArn"] = call.arn(task.destination)
    if task.rate:
        shown["MaxNumberOfMessagesPerSecond"] = task.rate
    if task.failure:
        shown["FailureReason"] = task.failure
    return shown


def _handle(call: SqsCall, task: MoveTask) -> str:
    """As AWS's: base64 of a JSON object that names the task and its source."""
    return b64encode(msgspec.json.encode({"taskId": task.id, "sourceArn": call.arn(task.source)})).decode()


def _task_id(handle: str) -> str:
    try:
        found = msgspec.json.decode(b64decode(handle, validate=True), type=dict[str, str])
        return found["taskId"]
    except (Error, ValueError, KeyError, msgspec.DecodeError):
        raise HeadraceError(
            ErrorKind.INVALID_PARAMETER, "Value for parameter TaskHandle is invalid."
        ) from None
