"""Driver: requests from broker to broker over HTTP: sealed when they leave, judged before any handler sees them (A1, A27)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headrace.broker.introductions import Introductions
from headrace.broker.runtime import Runtime
from headrace.cluster.image import ClusterImage
from headrace.core import principals
from headrace.core.cluster_key import PEER_REQUESTS, derive
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.peer_proof import BadProof
from headrace.core.units import is_digits
from headrace.http.messages import Request, Response
from headrace.http.peer_seals import (
    CLOCK,
    SEAL,
    WINDOW_MS,
    BadSeal,
    Nonces,
    OutOfTime,
    Seal,
    SealedRequest,
    hear_time,
    read_seal,
    tell_time,
)
from headrace.http.problem import problem
from headrace.net.h1_client import ClientResponse, H1Client, HttpFailure, Origin
from headrace.net.tls import PeerTls

log = logging.getLogger(__name__)

INTERNAL = "/internal/"
NEWS = b"x-headrace-news"
"""Up to which revision the asker knows the metadata: it is not answered from older ones (F1)."""
NONCE_BYTES = 12
MAX_DIGITS = 19
_REFUSED = "PEER_REFUSED"


class PeerRequests:
    def __init__(
        self,
        runtime: Runtime,
        image: ClusterImage,
        introductions: Introductions,
        cluster_key: bytes,
        tls: PeerTls | None = None,
    ) -> None:
        self._tls = tls
        self._runtime = runtime
        self._image = image
        self._introductions = introductions
        self._key = derive(cluster_key, PEER_REQUESTS)
        self._client = H1Client()
        self._nonces = Nonces()
        clock = runtime.clock
        self._ahead_ms = clock.wall_ms() - clock.now_ms()
        """Our time for seals: the wall's when we began, and steady since, so that no jump makes an old request new."""
        self._ahead_of: dict[tuple[int, int], int] = {}
        """The same for peers (and lives of them) whose clocks are known to be elsewhere."""

    # -- asking --------------------------------------------------------------------------------------------------

    async def ask(
        self,
        broker_id: int,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
    ) -> ClientResponse:
        """Raises HeadraceError: NOT_COORDINATOR when nothing happened, REQUEST_TIMED_OUT when it may have."""
        node = self._image.broker(broker_id)
        if node is None:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"broker {broker_id} is away")
        registration, life = node.registration, (broker_id, node.epoch)
        context = None if self._tls is None else self._tls.context
        origin = Origin(registration.http_host, registration.http_port, context)
        headers = {**headers, NEWS.decode(): str(self._image.revision)}
        raw = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in headers.items()}
        for _ in range(2):
            seal = self._seal(life)
            sealed = {
                **headers,
                SEAL.decode(): seal.encode(self._key, SealedRequest(method, target, raw, body)).decode(),
            }
            try:
                got = await self._client.request(
                    origin, method, target, headers=sealed, body=body, timeout_s=timeout_s
                )
            except HttpFailure as failure:
                # What was sent may have happened: the client is told so, and decides.
                kind = ErrorKind.REQUEST_TIMED_OUT if failure.sent else ErrorKind.NOT_COORDINATOR
                raise HeadraceError(kind, f"broker {broker_id}: {failure}") from None
            if got.headers.get("x-headrace-refused") != _REFUSED:
                return got
            if not self._set_clock(life, seal.nonce, got.headers.get(CLOCK.decode(), "")):
                break
        raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"broker {broker_id} does not take us for a peer now")

    def _seal(self, life: tuple[int, int]) -> Seal:
        ahead_ms = self._ahead_of.get(life, self._ahead_ms)
        return Seal(
            self._image.broker_id,
            self._introductions.broker_epoch,
            *life,
            self._runtime.clock.now_ms() + ahead_ms,
            self._runtime.random_bytes(NONCE_BYTES).hex(),
        )

    def _set_clock(self, life: tuple[int, int], nonce: str, told: str) -> bool:
        at_ms = hear_time(self._key, nonce, told)
        if at_ms is None:
            return False
        log.warning("the clock of broker %d and ours differ by more than %d s", life[0], WINDOW_MS // 1000)
        self._ahead_of = {known: ahead for known, ahead in self._ahead_of.items() if known[0] != life[0]}
        self._ahead_of[life] = at_ms - self._runtime.clock.now_ms()
        return True

    async def close(self) -> None:
        await self._client.close()

    # -- being asked ---------------------------------------------------------------------------------------------

    def judge(self, request: Request) -> Response | None:
        """Before any handler: None to go on, with `request.sender` set when a peer asks. Once per request."""
        value = request.headers.get(SEAL)
        if value is None and not request.path.startswith(INTERNAL):
            return None
        target = f"{request.path}?{request.query_string}" if request.query_string else request.path
        said = SealedRequest(request.method, target, request.headers, request.body)
        try:
            if value is None:
                raise BadSeal("there is none")
            seal = read_seal(self._key, value, said)
            self._check(seal, request.peer.certified_broker)
        except BadSeal as trouble:
            log.warning("a request from %s is not taken for a peer's: %s", request.peer.host, trouble)
            return self._refusal(request, trouble)
        request.sender = principals.broker(seal.asker, seal.asker_epoch)
        return None

    def _check(self, seal: Seal, certified: int) -> None:
        try:
            self._introductions.need_certified(seal.asker, certified)
        except BadProof as trouble:
            raise BadSeal(str(trouble)) from None
        if (seal.answerer, seal.answerer_epoch) != (self._image.broker_id, self._introductions.broker_epoch):
            raise BadSeal("it is for another broker, or another life of it")
        node = self._image.broker(seal.asker)
        if node is not None and seal.asker_epoch < node.epoch:
            raise BadSeal("it comes from an earlier life of that broker")
        now_ms = self._runtime.clock.now_ms()
        if abs(now_ms + self._ahead_ms - seal.at_ms) > WINDOW_MS:
            raise OutOfTime(seal.nonce)
        if not self._nonces.is_news(seal.nonce, now_ms):
            raise BadSeal("it was said before")

    def _refusal(self, request: Request, trouble: BadSeal) -> Response:
        headers = [("x-headrace-refused", _REFUSED)]
        if isinstance(trouble, OutOfTime):
            at_ms = self._runtime.clock.now_ms() + self._ahead_ms
            headers.append((CLOCK.decode(), tell_time(self._key, trouble.nonce, at_ms).decode()))
        return problem(
            403,
            _REFUSED,
            f"this is for brokers of the same cluster: the seal is not good, {trouble}",
            hint="Leave the header x-headrace-peer out; only brokers can make it.",
            request_id=request.request_id,
            instance=request.path,
            headers=tuple(headers),
        )


def asked_from(request: Request) -> int:
    """The revision of the metadata that a peer asks from; 0 when it does not say, or it is no peer who asks."""
    told = request.header(NEWS) if request.sender is not None else ""
    return int(told) if is_digits(told) and len(told) <= MAX_DIGITS else 0
