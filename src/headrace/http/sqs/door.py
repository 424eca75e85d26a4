"""Door: SQS over HTTP. Routed by X-Amz-Target, never by path: SDKs post to `/` or to the queue's URL.

A form without that header is the older Query protocol: same actions, other clothes (query.py); its GET has the form in the
URL.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping

import msgspec

from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.http.browsers import need_program
from headrace.http.forwarding import Forwarder
from headrace.http.guarding import HttpGuard, Unauthenticated
from headrace.http.messages import Answer, Handler, Request, Response
from headrace.http.peer_requests import asked_from
from headrace.http.problem import problem
from headrace.http.router import Router
from headrace.http.sqs import move_actions, query, queue_actions, receive_actions, send_actions
from headrace.http.sqs.call import SqsCall, SqsServices, SqsSettings
from headrace.http.sqs.host import SqsHost
from headrace.http.sqs.rights import RIGHTS, named
from headrace.http.sqs.send_actions import MAX_MESSAGE_BYTES
from headrace.security.guard import ABSENT
from headrace.security.key_ring import KeyRing
from headrace.security.rights import JUDGED_INSIDE, Rights
from headrace.security.sigv4 import SCHEME, BadSignature, Credential, SignatureVerifier, is_presigned

log = logging.getLogger(__name__)

JSON = "application/x-amz-json-1.0"
MAX_BODY_BYTES = 8 * MAX_MESSAGE_BYTES
"""Six bytes are the most that escaping makes of one (`\\u0041`; a form's `%41` are three), and the parameters around them."""
_TARGET = "AmazonSQS."

Action = Callable[[SqsCall], Coroutine[object, object, dict[str, object]]]

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

LOOKING = frozenset((
    "GetQueueUrl", "ListQueues", "GetQueueAttributes", "ListQueueTags", "ListDeadLetterSourceQueues",
    "ListMessageMoveTasks",
))  # fmt: skip
"""Actions that change nothing: any GET may ask for them, an `<img>` of a web page too, which can't read the answer."""

CHANGING = frozenset((
    "CreateQueue", "DeleteQueue", "SetQueueAttributes", "PurgeQueue", "AddPermission", "RemovePermission", "TagQueue", "UntagQueue",
    "StartMessageMoveTask", "CancelMessageMoveTask",
))  # fmt: skip
"""Actions that change something for everybody: they stand in the audit."""

_BY_TARGET = {(_TARGET + name).encode(): (name, action) for name, action in ACTIONS.items()}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_NO_ACCESS = "The specified queue does not exist or you do not have access to it."
_PASSED_ON = (400, 403, 404, 413, 500, 503, 504)


class SqsDoor:
    def __init__(
        self,
        broker: SqsHost,
        settings: SqsSettings,
        forwarder: Forwarder,
        front: Handler,
        guard: HttpGuard,
        keys: KeyRing,
    ) -> None:
        """`front` answers who GETs `/` and does not mean SQS."""
        self._front = front
        self._guard = guard
        self._broker = broker
        self._forwarder = forwarder
        self._services = SqsServices(broker, broker.queues, settings)
        self._keys = keys
        self._verifier = SignatureVerifier(keys.secret_of)
        self.requests: dict[str, int] = {}
        self.told: Callable[[str, SqsCall], None] | None = None
        """Told which action a request turned out to be."""

    def mount(self, router: Router) -> None:
        for path in ("/", "/{account}/{queue}"):
            router.add(
                "POST",
                path,
                self._handle,
                JUDGED_INSIDE,
                max_body_bytes=MAX_BODY_BYTES,
                any_body=True,
                too_large=too_large,
            )
        router.add("GET", "/", self._handle_root, JUDGED_INSIDE)
        router.add("GET", "/{account}/{queue}", self._handle_get, JUDGED_INSIDE)

    async def _handle_root(self, request: Request) -> Answer:
        """Whoever means SQS names an action, and each action is checked for its own rights."""
        if "Action=" in request.query_string or b"x-amz-target" in request.headers:
            return await self._handle(request)
        answer = self._front(request)
        return answer if isinstance(answer, Answer) else await answer

    async def _handle_get(self, request: Request) -> Response:
        if "Action=" not in request.query_string:
            return problem(
                404, "NOT_FOUND", "there is nothing at this path",
                hint="GET /openapi.json lists what there is; an SQS request names an Action.",
                request_id=request.request_id, instance=request.path,
            )  # fmt: skip
        return await self._handle(request)

    async def _handle(self, request: Request) -> Response:
        is_query, call = False, None
        try:
            found = _BY_TARGET.get(request.headers.get(b"x-amz-target", b""))
            is_guarded = self._guard.is_on
            credential = self._signed(request) if is_guarded or self._keys.must_sign else None
            region = "" if credential is None else credential.region
            if found is not None:
                name, action = found
                parameters = _json(request)
            else:
                is_query = _is_query(request.method, request.headers)
                name, action, parameters = _older(request, is_query, is_proven=credential is not None)
            self.requests[name] = self.requests.get(name, 0) + 1
            call = SqsCall(self._services, request, parameters, region)
            if self.told is not None:
                self.told(name, call)
            if is_guarded:
                await self._check(call, credential, RIGHTS[name])
            meter = self._guard.meter if self._guard.meter.is_on and request.sender is None else None
            if meter is not None:
                meter.need_room(request)
            if request.sender is not None:
                await self._broker.latest.reach(asked_from(request))
            try:
                work = action(call)
                answer = await (work if meter is None else meter.timed(request, work))
            except (Unknown, WrongBroker) as refusal:
                answer = await self._once_more(action, call, refusal)
            if is_guarded and name in CHANGING:
                queue = named(parameters, call)
                self._guard.write_down(request, name, "Group", queue["queue"] or queue["source"], "")
            headers = (("x-amzn-requestid", request.request_id),)
            if is_query:
                body = query.encode_answer(name, answer, request.request_id)
                shown = Response(body, 200, query.CONTENT_TYPE, headers)
            else:
                shown = Response(_encode(answer), 200, JSON, headers)
            if meter is not None:
                meter.count(request, shown)
            return shown
        except Exception as error:
            return await self._refused(request, error, is_query, "" if call is None else call.region)

    async def _check(self, call: SqsCall, credential: Credential | None, rights: Rights) -> None:
        """Who signs is the owner of the key (A22, A31, A45)."""
        request, parameters = call.request, call.parameters
        try:
            key = None if credential is None else self._keys.find(credential.access_key)
            if credential is not None and key is not None:
                request.access = self._guard.admit(key.owner, credential.access_key, request)
            else:
                request.access = await self._guard.identify(request)
            self._guard.check(rights, named(parameters, call), parameters, request.access)
        except Unauthenticated as refusal:
            raise HeadraceError(ErrorKind.MISSING_AUTHENTICATION, f"{refusal}.") from None
        except HeadraceError as refusal:
            if refusal.kind in ABSENT.values():
                raise HeadraceError(ErrorKind.QUEUE_DOES_NOT_EXIST, _NO_ACCESS) from None
            raise

    async def _once_more(self, action: Action, call: SqsCall, refusal: HeadraceError) -> dict[str, object]:
        """Nothing has happened yet. A name that is not known here may be young; so may be the news that a queue lives here
        (F34). What certainly lives elsewhere is asked there."""
        if isinstance(refusal, WrongBroker) and self._is_asked_there(call.request, refusal):
            raise refusal
        await self._broker.latest.doubt(refusal)
        try:
            return await action(call)
        except WrongBroker as wrong:
            if self._is_asked_there(call.request, wrong):
                raise
            raise Unknown(wrong.kind, wrong.detail) from wrong

    def _is_asked_there(self, request: Request, wrong: WrongBroker) -> bool:
        return request.sender is None and wrong.broker_id != self._broker.node_id

    async def _refused(self, request: Request, error: Exception, is_query: bool, region: str) -> Response:
        try:
            if isinstance(error, WrongBroker):
                return await self._forwarder.forward(request, error, region)
            raise error
        except HeadraceError as refusal:
            return error_response(refusal, request.request_id, is_query=is_query)
        except Exception as bug:
            log.error("sqs: request %s failed", request.request_id, exc_info=bug)
            detail = "The server failed on this request. This is a bug; the broker's log has the request id."
            failure = HeadraceError(ErrorKind.UNKNOWN_SERVER_ERROR, detail)
            return error_response(failure, request.request_id, is_query=is_query)

    def _signed(self, request: Request) -> Credential | None:
        """Who signs is judged by the signature alone (X19), and must where keys are configured by file. Mode observe refuses nobody."""
        is_signed = request.header(b"authorization").startswith(SCHEME) or is_presigned(request.query_string)
        if request.sender is not None or not (is_signed or self._keys.must_sign):
            return None
        self._guard.need_heard(request)
        try:
            return self._verifier.verify(
                request.method,
                request.path,
                request.query_string,
                request.headers,
                request.body,
                self._broker.runtime.clock.wall_ms(),
            )
        except BadSignature as refusal:
            if not (self._keys.must_sign or self._guard.enforces):
                return None
            self._guard.failed(request)
            raise HeadraceError(
                ErrorKind.SIGNATURE_MISMATCH if is_signed else ErrorKind.MISSING_AUTHENTICATION,
                f"The request signature we calculated does not match the signature you provided: {refusal}.",
            ) from None


def _older(request: Request, is_query: bool, *, is_proven: bool) -> tuple[str, Action, dict[str, object]]:
    """What names its action in a form, or wrongly. `is_proven`: its signature was verified."""
    target = request.header(b"x-amz-target")
    name = target.removeprefix(_TARGET) if target.startswith(_TARGET) else ""
    parameters = _form(request) if is_query else _json(request)
    if is_query:
        name = str(parameters.pop("Action", ""))
        if not (is_proven and request.method == "GET"):
            _need_no_page(request, name)
    action = ACTIONS.get(name)
    if action is None:
        raise HeadraceError(
            ErrorKind.INVALID_ACTION,
            f"The action {name or target or 'none'} is not valid for this endpoint.",
        )
    return name, action, parameters


def _is_query(method: str, headers: Mapping[bytes, bytes]) -> bool:
    if b"x-amz-target" in headers:
        return False
    return method != "POST" or headers.get(b"content-type", b"").startswith(query.FORM.encode())


def _need_no_page(request: Request, action: str) -> None:
    """Nothing changes by a GET that a web page can make (decision 0024): none can sign, since a page of another origin can't
    set Authorization, and the Basic one that a URL may bring is of another scheme."""
    if request.method == "POST" or action in LOOKING:
        return
    if request.method == "GET" and request.header(b"authorization").startswith(SCHEME + " "):
        return
    try:
        need_program(
            request.headers, request.method, "POST or a signed request (SigV4, in the Authorization header)"
        )
    except HeadraceError as refusal:
        raise HeadraceError(refusal.kind, f"{action}: {refusal.detail}. {refusal.hint}") from None


def too_large(headers: Mapping[bytes, bytes], cap: int) -> Response:
    """A body that is too long whatever is in it: the refusal that SDKs know of messages that are."""
    is_batch = headers.get(b"x-amz-target", b"").endswith(b"Batch")
    refusal = (
        HeadraceError(
            ErrorKind.BATCH_TOO_LONG,
            f"Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes. You have sent more than {cap} bytes.",
        )
        if is_batch
        else HeadraceError(
            ErrorKind.INVALID_PARAMETER,
            f"One or more parameters are invalid. Reason: Message must be shorter than {MAX_MESSAGE_BYTES} bytes.",
        )
    )
    return error_response(refusal, "", is_query=_is_query("POST", headers))


def _json(request: Request) -> dict[str, object]:
    try:
        parameters = _decode(request.body) if request.body else {}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise HeadraceError(ErrorKind.INVALID_PARAMETER, "The request body is not valid JSON.") from None
    if not isinstance(parameters, dict):
        raise HeadraceError(ErrorKind.INVALID_PARAMETER, "The request body must be a JSON object.")
    return parameters


def _form(request: Request) -> dict[str, object]:
    parameters = query.parse_form(request.body if request.method == "POST" else request.query_string.encode())
    if "queue" in request.params:
        parameters.setdefault(
            "QueueUrl", request.path
        )  # older SDKs post to the queue and do not name it again
    return parameters


def error_response(refusal: HeadraceError, request_id: str, *, is_query: bool = False) -> Response:
    info = refusal.kind.info
    fault = "Sender" if info.http_status < 500 else "Receiver"
    status = info.http_status if info.http_status in _PASSED_ON else 400
    if is_query:
        body = query.encode_error(info.sqs_code, fault, refusal.detail, request_id)
        return Response(body, status, query.CONTENT_TYPE, (("x-amzn-requestid", request_id),))
    document = {"__type": f"com.amazonaws.sqs#{info.sqs_type}", "message": refusal.detail}
    headers = (("x-amzn-requestid", request_id), ("x-amzn-query-error", f"{info.sqs_code};{fault}"))
    return Response(_encode(document), status, JSON, headers)
