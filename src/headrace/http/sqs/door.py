"""Door: SQS over HTTP. Routed by X-Amz-Target, never by path: SDKs post to `/` or to the queue's URL.

A form without that header is the older Query protocol: same actions, other clothes (query.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from headrace.broker.broker import Broker
from headrace.broker.queueing.elsewhere import Elsewhere
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.http.forwarding import HOST as FORWARDED_HOST
from headrace.http.forwarding import Forwarder
from headrace.http.messages import Request, Response
from headrace.http.router import Router
from headrace.http.sqs import move_actions, query, queue_actions, receive_actions, send_actions
from headrace.http.sqs.call import Call, SqsSettings
from headrace.security.sigv4 import BadSignature, SignatureVerifier, claimed_region

JSON = "application/x-amz-json-1.0"
MAX_BODY_BYTES = 2 * 1024 * 1024
_TARGET = "AmazonSQS."

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
    "StartMessageMoveTask": move_actions.start_message_move_task,
    "ListMessageMoveTasks": move_actions.list_message_move_tasks,
    "CancelMessageMoveTask": move_actions.cancel_message_move_task,
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
_PASSED_ON = (400, 403, 404, 413, 500, 503, 504)


class SqsDoor:
    def __init__(self, broker: Broker, settings: SqsSettings, forwarder: Forwarder) -> None:
        self._broker = broker
        self._forwarder = forwarder
        self._settings = settings
        self._verifier = SignatureVerifier(settings.access_keys) if settings.access_keys else None
        self.requests: dict[str, int] = {}

    def mount(self, router: Router) -> None:
        for path in ("/", "/{account}/{queue}"):
            router.add("POST", path, self._handle, max_body_bytes=MAX_BODY_BYTES, any_body=True)

    async def _handle(self, request: Request) -> Response:
        target = request.header(b"x-amz-target")
        is_query = not target and request.header(b"content-type").startswith(query.FORM)
        name = target.removeprefix(_TARGET) if target.startswith(_TARGET) else ""
        try:
            region = self._signed(request)
            parameters = _form(request) if is_query else _json(request)
            if is_query:
                name = str(parameters.pop("Action", ""))
            action = ACTIONS.get(name)
            if action is None:
                raise HeadraceError(
                    ErrorKind.INVALID_ACTION,
                    f"The action {name or target or 'none'} is not valid for this endpoint.",
                )
            self.requests[name] = self.requests.get(name, 0) + 1
            call = self._call(request, parameters, region)
            is_last = request.sender is not None
            answer = await self._broker.latest.answer(lambda: self._act(action, call, is_last))
            return _answered(name, answer, request.request_id, is_query=is_query)
        except Elsewhere as elsewhere:
            try:
                return await self._forwarder.forward(request, elsewhere)
            except HeadraceError as problem:
                return error_response(problem, request.request_id, is_query=is_query)
        except HeadraceError as problem:
            return error_response(problem, request.request_id, is_query=is_query)

    async def _act(self, action: Action, call: Call, is_last: bool) -> dict[str, Any]:
        try:
            return await action(call)
        except Elsewhere as elsewhere:
            if is_last or elsewhere.broker_id == self._broker.node_id:
                # It lives here, as others or our own image say, and is not open yet; nothing has happened (F34).
                raise Unknown(elsewhere.kind, elsewhere.detail) from elsewhere
            raise

    def _signed(self, request: Request) -> str:
        """The region a caller claims; when keys are configured it must have signed the claim (X19)."""
        if self._verifier is not None and request.sender is None:
            try:
                credential = self._verifier.verify(
                    request.method,
                    request.path,
                    request.query_string,
                    request.headers,
                    request.body,
                    self._broker.runtime.clock.wall_ms(),
                )
            except BadSignature as problem:
                raise HeadraceError(
                    ErrorKind.ACCESS_DENIED,
                    f"The request signature we calculated does not match the signature you provided: {problem}.",
                ) from None
            return credential.region
        return claimed_region(request.header(b"authorization")) or self._settings.region

    def _call(self, request: Request, parameters: dict[str, Any], region: str) -> Call:
        host = request.header(b"host") or "localhost"
        if request.sender is not None:
            host = request.header(FORWARDED_HOST) or host
        scheme = "https" if request.peer.is_tls else "http"
        return Call(self._broker, self._settings, parameters, f"{scheme}://{host}", region)


def _json(request: Request) -> dict[str, Any]:
    try:
        parameters = _decode(request.body) if request.body else {}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise HeadraceError(ErrorKind.INVALID_PARAMETER, "The request body is not valid JSON.") from None
    if not isinstance(parameters, dict):
        raise HeadraceError(ErrorKind.INVALID_PARAMETER, "The request body must be a JSON object.")
    return parameters


def _form(request: Request) -> dict[str, Any]:
    parameters = query.parse_form(request.body)
    if "queue" in request.params:
        parameters.setdefault(
            "QueueUrl", request.path
        )  # older SDKs post to the queue and do not name it again
    return parameters


def _answered(action: str, answer: dict[str, Any], request_id: str, *, is_query: bool) -> Response:
    headers = (("x-amzn-requestid", request_id),)
    if is_query:
        return Response(query.encode_answer(action, answer, request_id), 200, query.CONTENT_TYPE, headers)
    return Response(_encode(answer), 200, JSON, headers)


def error_response(problem: HeadraceError, request_id: str, *, is_query: bool = False) -> Response:
    info = problem.kind.info
    fault = "Sender" if info.http_status < 500 else "Receiver"
    status = info.http_status if info.http_status in _PASSED_ON else 400
    if is_query:
        body = query.encode_error(info.sqs_code, fault, problem.detail, request_id)
        return Response(body, status, query.CONTENT_TYPE, (("x-amzn-requestid", request_id),))
    document = {"__type": f"com.amazonaws.sqs#{info.sqs_type}", "message": problem.detail}
    headers = (("x-amzn-requestid", request_id), ("x-amzn-query-error", f"{info.sqs_code};{fault}"))
    return Response(_encode(document), status, JSON, headers)
