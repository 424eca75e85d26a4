"""Door: SQS over HTTP. Routed by X-Amz-Target, never by path: SDKs post to `/` or to the queue's URL."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from headrace.broker.broker import Broker
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.messages import Request, Response
from headrace.http.router import Router
from headrace.http.sqs import queue_actions, receive_actions, send_actions
from headrace.http.sqs.call import Call, SqsSettings

log = logging.getLogger(__name__)

JSON = "application/x-amz-json-1.0"
MAX_BODY_BYTES = 2 * 1024 * 1024
_TARGET = "AmazonSQS."
_CREDENTIAL = re.compile(r"Credential=([^/]+)/(\d{8})/([a-z0-9-]+)/sqs/aws4_request")

Action = Callable[[Call], Awaitable[dict[str, Any]]]

ACTIONS: dict[str, Action] = {
    "CreateQueue": queue_actions.create_queue,
    "DeleteQueue": queue_actions.delete_queue,
    "GetQueueUrl": queue_actions.get_queue_url,
    "ListQueues": queue_actions.list_queues,
    "GetQueueAttributes": queue_actions.get_queue_attributes,
    "SetQueueAttributes": queue_actions.set_queue_attributes,
    "PurgeQueue": queue_actions.purge_queue,
    "TagQueue": queue_actions.tag_queue,
    "UntagQueue": queue_actions.untag_queue,
    "ListQueueTags": queue_actions.list_queue_tags,
    "ListDeadLetterSourceQueues": queue_actions.list_dead_letter_source_queues,
    "AddPermission": queue_actions.add_permission,
    "RemovePermission": queue_actions.remove_permission,
    "SendMessage": send_actions.send_message,
    "SendMessageBatch": send_actions.send_message_batch,
    "ReceiveMessage": receive_actions.receive_message,
    "DeleteMessage": receive_actions.delete_message,
    "DeleteMessageBatch": receive_actions.delete_message_batch,
    "ChangeMessageVisibility": receive_actions.change_message_visibility,
    "ChangeMessageVisibilityBatch": receive_actions.change_message_visibility_batch,
}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class SqsDoor:
    def __init__(self, broker: Broker, settings: SqsSettings) -> None:
        self._broker = broker
        self._settings = settings
        self.requests: dict[str, int] = {}

    def mount(self, router: Router) -> None:
        router.add("POST", "/", self._handle, max_body_bytes=MAX_BODY_BYTES)
        router.add("POST", "/{account}/{queue}", self._handle, max_body_bytes=MAX_BODY_BYTES)

    async def _handle(self, request: Request) -> Response:
        target = request.header(b"x-amz-target")
        try:
            action = ACTIONS.get(target.removeprefix(_TARGET)) if target.startswith(_TARGET) else None
            if action is None:
                raise HeadraceError(
                    ErrorKind.INVALID_ACTION, f"The action {target or 'none'} is not valid for this endpoint."
                )
            self.requests[target] = self.requests.get(target, 0) + 1
            answer = await action(self._call(request))
            return Response(_encode(answer), 200, JSON, (("x-amzn-requestid", request.request_id),))
        except HeadraceError as problem:
            return error_response(problem, request.request_id)

    def _call(self, request: Request) -> Call:
        try:
            parameters = _decode(request.body) if request.body else {}
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise HeadraceError(ErrorKind.INVALID_PARAMETER, "The request body is not valid JSON.") from None
        if not isinstance(parameters, dict):
            raise HeadraceError(ErrorKind.INVALID_PARAMETER, "The request body must be a JSON object.")
        found = _CREDENTIAL.search(request.header(b"authorization"))
        region = found.group(3) if found is not None else self._settings.region
        host = request.header(b"host") or "localhost"
        scheme = "https" if request.peer.is_tls else "http"
        return Call(self._broker, self._settings, parameters, f"{scheme}://{host}", region)


def error_response(problem: HeadraceError, request_id: str) -> Response:
    info = problem.kind.info
    body = {"__type": f"com.amazonaws.sqs#{info.sqs_type}", "message": problem.detail}
    fault = "Sender" if info.http_status < 500 else "Receiver"
    headers = (("x-amzn-requestid", request_id), ("x-amzn-query-error", f"{info.sqs_code};{fault}"))
    status = info.http_status if info.http_status in (400, 403, 404, 413, 503, 504) else 400
    return Response(_encode(body), status, JSON, headers)
