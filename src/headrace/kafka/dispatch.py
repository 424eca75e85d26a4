"""Door: from a frame to the handler that declared its API. The table is built from `handlers/`, nothing is listed here.

A handler module has KEY, VERSIONS, RIGHTS (what its caller must be allowed, A39; without it nothing is loaded) and either `handle(call)` (may be a coroutine function) or, on the hot path,
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
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from headrace.broker.services import Services
from headrace.core.errors import ErrorKind
from headrace.core.limits import MAX_REQUEST_ENTRIES
from headrace.core.ports import Buffer
from headrace.kafka import handlers as handler_package
from headrace.kafka.call import Call, OfferedApi
from headrace.kafka.connection import Connection, Slot
from headrace.kafka.handlers import k18_api_versions
from headrace.kafka.named_topics import ALWAYS_LATEST, NAMED
from headrace.kafka.throttle import TimedRequest
from headrace.security.guard import Guard
from headrace.security.rights import Rights
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import decode, encode, encode_sliced
from headrace.wire.framing import RequestHeader, decode_request_header, encode_response
from headrace.wire.primitives import ProtocolError, TooManyEntries
from headrace.wire.schema import STRUCTS

log = logging.getLogger(__name__)

FrameHandler = Callable[[Services, Connection, RequestHeader, memoryview, int], bool]


class Entry(NamedTuple):
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
    decode_frame: Callable[[memoryview, int, int], object] | None
    """Of a handler that decodes by itself, for a guard that has to know what is asked."""


def _load() -> dict[int, Entry]:
    table: dict[int, Entry] = {}
    for module_info in pkgutil.iter_modules(handler_package.__path__):
        module = importlib.import_module(f"{handler_package.__name__}.{module_info.name}")
        low, high = module.VERSIONS
        table[module.KEY] = Entry(
            module.KEY,
            low,
            high,
            getattr(module, "LOWEST_ADVERTISED", low),
            getattr(module, "HIGHEST_ADVERTISED", high),
            getattr(module, "handle", None),
            getattr(module, "handle_frame", None),
            getattr(module, "MOST_ENTRIES", MAX_REQUEST_ENTRIES),
            module.RIGHTS,
            getattr(module, "decode_frame", None),
        )
    return dict(sorted(table.items()))


TABLE: dict[int, Entry] = _load()


class Dispatcher:
    def __init__(self, services: Services, guard: Guard | None = None) -> None:
        """Without a guard everything is allowed (mode open)."""
        self._services = services
        self._guard = guard
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
            if entry.handle_frame is not None:
                if self._guard is not None and entry.decode_frame is not None:
                    asked = entry.decode_frame(frame, position, header.api_version)
                    if self._denies(self._guard, entry, connection, header, asked):
                        return False
                return entry.handle_frame(self._services, connection, header, frame, position)
            request = decode(
                API[header.api_key].request,
                header.api_version,
                frame,
                position,
                exact=False,
                most=entry.most_entries,
            )
            if self._guard is not None and self._denies(self._guard, entry, connection, header, request):
                return False
            return self._call(entry, connection, header, request)
        except TooManyEntries:
            self._refuse(connection, header)
        except ProtocolError as problem:
            connection.fail(f"malformed request: {problem}")
        except Exception:
            log.exception("a request handler failed; closing the connection")
            connection.close()
        return False

    def _call(self, entry: Entry, connection: Connection, header: RequestHeader, request: object) -> bool:
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
        )
        slot = connection.open_slot()
        result = (
            self._informed(entry.handle, call) if self._is_late(entry.key, request) else entry.handle(call)
        )
        if inspect.isawaitable(result):
            self._broker.runtime.spawn(
                self._finish(connection, slot, header, result), f"api {header.api_key}"
            )
            return True
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

    async def _finish(
        self, connection: Connection, slot: Slot, header: RequestHeader, result: Awaitable[object]
    ) -> None:
        try:
            response = await result
            body: list[Buffer] = []
            for _ in encode_sliced(response, header.api_version, body):
                await asyncio.sleep(0)
            self._send(slot, header, b"".join(body))
        except Exception:
            log.exception("a request handler failed; closing the connection")
            connection.close()
        else:
            connection.request_done()

    def _answer(self, slot: Slot, header: RequestHeader, response: object) -> None:
        self._send(slot, header, encode(response, header.api_version))

    def _send(self, slot: Slot, header: RequestHeader, body: bytes) -> None:
        key, version, correlation_id, _ = header
        slot.send((encode_response(key, version, correlation_id, body),))

    def _denies(
        self, guard: Guard, entry: Entry, connection: Connection, header: RequestHeader, request: object
    ) -> bool:
        """Nothing is carried out of a request of which a part is not allowed."""
        missing = guard.kafka(entry.rights, request, connection.session.principal, connection.host)
        if missing is not None:
            self._refuse_all(connection, header, missing.kind, f"{API[header.api_key].name} {missing.words}")
        return missing is not None

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
        specs = {spec.name: spec for spec in STRUCTS.get(api.response, ())}
        if "error_code" not in specs or not specs["error_code"].carried_by(header.api_version):
            connection.fail(reason)
            return
        response = api.response(error_code=kind.kafka_code)
        if "error_message" in specs:
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
