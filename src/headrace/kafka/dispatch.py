"""Door: from a frame to the handler that declared its API. The table is built from `handlers/`, nothing is listed here.

A handler module has KEY, VERSIONS, RIGHTS (what its caller must be allowed, A39; without it nothing is loaded), PARTS where a
request is a list of things that are judged one by one, and either `handle(call)` (may be a coroutine function) or, on the hot path,
`handle_frame(...)`, which decodes and answers by itself. It may say how many entries a request may have (MOST_ENTRIES).

A3: what a request may cost is bounded before it is decoded, and the work on it is cut into slices. A request with too many
entries is answered with INVALID_REQUEST where the API has a place for an error of the whole request; elsewhere the
connection is closed, with a line in the log. A handler without a coroutine is for requests without lists.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import pkgutil
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from headrace.broker.services import Services
from headrace.core.errors import ErrorKind
from headrace.core.limits import MAX_REQUEST_ENTRIES
from headrace.core.ports import Buffer
from headrace.kafka import handlers as handler_package
from headrace.kafka.call import Call, OfferedApi
from headrace.kafka.changes import CHANGES
from headrace.kafka.connection import Connection, Slot
from headrace.kafka.handlers import k18_api_versions, k36_sasl_authenticate
from headrace.kafka.named_topics import ALWAYS_LATEST, NAMED
from headrace.kafka.refusals import add_refusals
from headrace.kafka.throttle import TimedRequest
from headrace.security.desk import Security
from headrace.security.guard import Parts, RefusedEntry
from headrace.security.rights import Rights
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import decode, encode, encode_sliced
from headrace.wire.framing import RequestHeader, decode_request_header, encode_response
from headrace.wire.primitives import ProtocolError, TooManyEntries
from headrace.wire.schema import STRUCTS

log = logging.getLogger(__name__)

_OF_LOGIN = (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)
_SASL = "SCRAM-SHA-256, SCRAM-SHA-512, or PLAIN over TLS"

FrameHandler = Callable[[Services, Connection, RequestHeader, memoryview, int], bool]


class ApiEntry(NamedTuple):
    key: int
    min_version: int
    max_version: int
    lowest_advertised: int
    """Below min_version for Produce only: librdkafka turns compression off unless version 0 is offered."""
    highest_advertised: int
    """Below max_version where later ones are between brokers; -1: never on offer to clients."""
    handle: Callable[[Call[Any]], object] | None
    """A coroutine function, or a plain one for requests without lists. Of its own request, as KEY says."""
    handle_frame: FrameHandler | None
    most_entries: int
    rights: Rights
    parts: tuple[Parts, ...]
    """Lists of the request whose entries are judged one by one (A44). A handler that decodes by itself also judges by itself."""


def _load() -> dict[int, ApiEntry]:
    table: dict[int, ApiEntry] = {}
    for module_info in pkgutil.iter_modules(handler_package.__path__):
        module = importlib.import_module(f"{handler_package.__name__}.{module_info.name}")
        low, high = module.VERSIONS
        table[module.KEY] = ApiEntry(
            module.KEY,
            low,
            high,
            getattr(module, "LOWEST_ADVERTISED", low),
            getattr(module, "HIGHEST_ADVERTISED", high),
            getattr(module, "handle", None),
            getattr(module, "handle_frame", None),
            getattr(module, "MOST_ENTRIES", MAX_REQUEST_ENTRIES),
            module.RIGHTS,
            getattr(module, "PARTS", ()),
        )
    return dict(sorted(table.items()))


TABLE: dict[int, ApiEntry] = _load()


class Dispatcher:
    def __init__(self, services: Services, security: Security) -> None:
        self._services = services
        self._security = security
        self._guard = security.guard
        self._authorizer = security.guard.authorizer
        self._broker = services.broker
        self._quotas = services.quotas
        self.requests: dict[int, int] = dict.fromkeys(TABLE, 0)
        self._apis = [
            OfferedApi(entry.key, entry.lowest_advertised, entry.highest_advertised)
            for entry in TABLE.values()
            if entry.highest_advertised >= 0
        ]

    def handle(self, connection: Connection, frame: memoryview) -> bool:
        """Execute one request; True when it is still deciding and the next request must wait for it."""
        if connection.session.is_proving:
            if connection.session.bare_tokens:
                return self._bare_token(connection, frame)
            if len(frame) < 2 or frame[0] or frame[1] not in _OF_LOGIN:
                connection.fail("a request between SaslHandshake and the last SaslAuthenticate")
                return False
        if self._quotas.active:
            with TimedRequest(self._quotas, connection) as timed:
                return self._handle(connection, frame, timed)
        return self._handle(connection, frame)

    def _handle(self, connection: Connection, frame: memoryview, timed: TimedRequest | None = None) -> bool:
        try:
            header, position = decode_request_header(frame)
            if timed is not None:
                timed.client_id = header.client_id or ""
            entry = TABLE.get(header.api_key)
            if entry is None:
                connection.fail(f"API key {header.api_key} is not served")
                return False
            self.requests[header.api_key] += 1
            if not entry.min_version <= header.api_version <= entry.max_version:
                self._unsupported(connection, header)
                return False
            guarded = self._authorizer.guards and not entry.rights.before_login
            if guarded and not self._is_heard(connection, header):
                return False
            if entry.handle_frame is not None:
                return entry.handle_frame(self._services, connection, header, frame, position)
            request = decode(
                API[header.api_key].request,
                header.api_version,
                frame,
                position,
                exact=False,
                most=entry.most_entries,
            )
            if guarded:
                return self._judged(entry, connection, header, request)
            return self._call(entry, connection, header, request)
        except TooManyEntries:
            self._refuse(connection, header)
        except ProtocolError as problem:
            connection.fail(f"malformed request: {problem}")
        except Exception:
            log.exception("a request handler failed; closing the connection")
            connection.close()
        return False

    def _call(
        self,
        entry: ApiEntry,
        connection: Connection,
        header: RequestHeader,
        request: object,
        refused: Sequence[RefusedEntry] = (),
    ) -> bool:
        """`refused`: what of the request was denied; it is in the answer, with everything else."""
        assert entry.handle is not None
        call = Call(
            self._services,
            self._broker,
            request,
            header.api_version,
            header.client_id or "",
            connection.host,
            connection.id,
            connection.session,
            self._apis,
            self._security,
        )
        slot = connection.open_slot()
        result = (
            self._informed(entry.handle, call) if self._is_late(entry.key, request) else entry.handle(call)
        )
        if entry.key in CHANGES and self._security.logins.audit.is_on:
            result = self._written_down(call, entry.key, result)
        if inspect.isawaitable(result):
            self._broker.runtime.spawn(
                self._finish(connection, slot, header, result, refused), f"api {header.api_key}"
            )
            return True
        if refused:
            add_refusals(result, refused)
        self._answer(slot, header, result)
        return False

    def _is_late(self, key: int, request: object) -> bool:
        """Whether the answer would rest on something that has perhaps not come here yet (F34)."""
        if key in ALWAYS_LATEST:
            return True
        named = NAMED.get(key)
        if named is None:
            return False
        image = self._broker.image
        return any(
            (image.topic_by_id(topic) if isinstance(topic, bytes) else image.topic(topic)) is None
            for topic in named(request)
        )

    async def _informed(self, handle: Callable[[Call[object]], object], call: Call[object]) -> object:
        await self._services.latest.news()
        result = handle(call)
        return await result if inspect.isawaitable(result) else result

    async def _written_down(self, call: Call[object], key: int, result: object) -> object:
        """A64: what has been changed, by whom."""
        response = await result if inspect.isawaitable(result) else result
        if not call.session.principal.is_broker:
            for act in CHANGES[key](call.request, response):
                self._security.logins.audit.did(str(call.session.principal), call.client_host, *act)
        return response

    async def _finish(
        self,
        connection: Connection,
        slot: Slot,
        header: RequestHeader,
        result: Awaitable[object],
        refused: Sequence[RefusedEntry],
    ) -> None:
        try:
            response = await result
            if refused:
                add_refusals(response, refused)
            body: list[Buffer] = []
            for _ in encode_sliced(response, header.api_version, body):
                await asyncio.sleep(0)
            self._send(slot, header, b"".join(body))
        except Exception:
            log.exception("a request handler failed; closing the connection")
            connection.close()
        else:
            if connection.session.is_over:
                connection.end()
            connection.request_done()

    def _answer(self, slot: Slot, header: RequestHeader, response: object) -> None:
        self._send(slot, header, encode(response, header.api_version))

    def _send(self, slot: Slot, header: RequestHeader, body: bytes) -> None:
        key, version, correlation_id, _ = header
        slot.send((encode_response(key, version, correlation_id, body),))

    # -- who may (A14, A39, A44) ---------------------------------------------------------------------------------------

    def _is_heard(self, connection: Connection, header: RequestHeader) -> bool:
        """Whether it has said who it is, where that is needed: nothing else is answered before (X7)."""
        session = connection.session
        access = session.access
        if session.ends_ms and self._broker.runtime.clock.now_ms() >= session.ends_ms:
            connection.fail(
                "the login has ended, and was not renewed"
            )  # A21: no error that some clients hang on
            return False
        if access is not None and not (access.is_nameless and self._authorizer.enforces):
            return True
        session.access = self._guard.admit(
            session.principal, connection.host, header.client_id or "", session.credential
        )
        if session.access is None:
            connection.fail(f"{API[header.api_key].name} before authentication; use SASL ({_SASL})")
        return session.access is not None

    def _judged(
        self, entry: ApiEntry, connection: Connection, header: RequestHeader, request: object
    ) -> bool:
        access = connection.session.access
        assert access is not None
        denied = self._guard.judge(entry.rights, entry.parts, request, access)
        if denied is None:
            return self._call(entry, connection, header, request)
        if not denied.is_empty:
            return self._call(entry, connection, header, request, denied.refused)
        api = API[header.api_key]
        if denied.whole is not None and (
            not denied.refused or _says_errors(api.response, header.api_version)
        ):
            self._refuse_all(connection, header, denied.whole.kind, f"{api.name} {denied.whole.words}")
            return False
        response = api.response()
        add_refusals(response, denied.refused)
        self._answer(connection.open_slot(), header, response)
        return False

    def _has_place(self, connection: Connection) -> bool:
        return k36_sasl_authenticate.has_place(self._services, connection.id)

    def _bare_token(self, connection: Connection, frame: memoryview) -> bool:
        """A15: after a handshake of version 0 tokens come and go without headers, and a refusal is the end."""
        slot, kept = connection.open_slot(), bytes(frame)

        async def step() -> None:
            try:
                token = await k36_sasl_authenticate.bare_step(connection.session, kept, self._security.logins)
            except Exception:
                log.exception("a login failed; closing the connection")
                token = None
            session = connection.session
            if token is None or (session.proved_by and not self._has_place(connection)):
                connection.close()
                return
            slot.send((len(token).to_bytes(4, "big") + token,))
            connection.request_done()

        self._broker.runtime.spawn(step(), "sasl token")
        return True

    def _refuse(self, connection: Connection, header: RequestHeader) -> None:
        """A3: too many entries. Nothing of the request was carried out."""
        name, most = API[header.api_key].name, TABLE[header.api_key].most_entries
        reason = f"{name} with more than {most} entries; ask in several requests"
        self._refuse_all(connection, header, ErrorKind.INVALID_REQUEST, reason)

    def _refuse_all(
        self, connection: Connection, header: RequestHeader, kind: ErrorKind, reason: str
    ) -> None:
        """Where the API has no place for an error of the whole request, the connection ends."""
        api = API[header.api_key]
        if not _says_errors(api.response, header.api_version):
            connection.fail(reason)
            return
        response = api.response(error_code=kind.kafka_code)
        if any(spec.name == "error_message" for spec in STRUCTS[api.response]):
            response.error_message = reason
        connection.server.warn(f"refusing {connection.host}: {reason}")
        self._answer(connection.open_slot(), header, response)

    def _unsupported(self, connection: Connection, header: RequestHeader) -> None:
        """KIP-511: only ApiVersions may be asked in a version we do not know, and it is answered in version 0."""
        if header.api_key != ApiKey.API_VERSIONS:
            name = API[header.api_key].name
            connection.fail(f"{name} version {header.api_version} is not served")
            return
        response = k18_api_versions.listing(self._apis, 0, ErrorKind.UNSUPPORTED_VERSION)
        self._answer(connection.open_slot(), header._replace(api_version=0), response)

    def connection_closed(self, connection: Connection) -> None:
        """A client is gone. Members leave by their session; only for replicas do we look after them."""
        services = self._services
        services.fetch_sessions.connection_closed(connection.id)
        services.share_groups.connection_closed(connection.id)
        services.broker.liveness.connection_closed(connection.id)


def _says_errors(response: type, version: int) -> bool:
    """Whether the answer has a place for an error of the whole request."""
    return any(spec.name == "error_code" and spec.carried_by(version) for spec in STRUCTS.get(response, ()))
