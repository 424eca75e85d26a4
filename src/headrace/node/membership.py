"""Driver: this broker's place in the cluster: registration, its lease, and coming back after losing it.

R6: the keep-alive is sent by the main loop, and only while the disk makes progress, so a half-dead broker does not
look alive. R8: the lease says when others notice; what is legal is decided by epochs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headrace.broker.metadata import Metadata
from headrace.broker.runtime import Runtime
from headrace.cluster.membership import PreviousLife, must_register_again, register
from headrace.cluster.state import BrokerRegistration
from headrace.coordinator.lease import LeaseTerm
from headrace.coordinator.port import Coordinator, CoordinatorError
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import Rejected

log = logging.getLogger(__name__)

RETRY_S = 0.2
STALLED_S = 1.0
ATTEMPTS = 20


class Membership:
    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        registration: BrokerRegistration,
        *,
        ttl_ms: int,
        durable: bool,
        making_progress: Callable[[], bool],
        lives: tuple[str, ...] = (),
    ) -> None:
        """`lives` are the incarnations that had this data directory before."""
        self._clock = runtime.lease_clock
        self._metadata = metadata
        self._coordinator: Coordinator = metadata.coordinator
        self._registration = registration
        self._lives = lives
        self._ttl_ms = ttl_ms
        self._durable = durable
        self._making_progress = making_progress
        self.term: LeaseTerm | None = None
        self.broker_epoch = 0
        self._silent_since_ms: int | None = None
        self._complained: str | None = None
        self.on_registering: list[Callable[[int], None]] = []
        """Called with the lease id before each registration: what dies half-way must leave a trace."""
        self.on_registered: list[Callable[[int, int], None]] = []
        """Called with (broker epoch, lease id) after each registration."""

    async def register(self, previous: PreviousLife | None) -> None:
        """Join, fenced. The controller lets us in once nobody counts on our earlier life (R4)."""
        broker_id = self._metadata.image.broker_id
        for _ in range(ATTEMPTS):
            sent_ms = self._clock.now_ms()
            lease = await self._coordinator.grant(self._ttl_ms)
            await self._metadata.load()
            change = register(
                self._metadata.image,
                broker_id,
                self._registration,
                lease=lease.id,
                previous=previous,
                durable=self._durable,
            )
            if isinstance(change, Rejected):
                await self._coordinator.revoke(lease.id)
                raise HeadraceError(change.kind, change.detail)
            for before in self.on_registering:
                before(lease.id)
            result = await self._metadata.commit(change)
            if result.succeeded:
                self.term = LeaseTerm(lease, sent_ms)
                self.broker_epoch = result.revision
                for callback in self.on_registered:
                    callback(result.revision, lease.id)
                return
            await self._coordinator.revoke(lease.id)
            await asyncio.sleep(RETRY_S)
        raise HeadraceError(ErrorKind.BROKER_NOT_AVAILABLE, "could not register with the coordinator")

    def _must_register_again(self) -> bool:
        image = self._metadata.image
        return must_register_again(image, image.broker_id, self.broker_epoch)

    def silence_ms(self) -> int:
        """How long the coordinator has not answered although it was asked; 0 while it answers."""
        return 0 if self._silent_since_ms is None else self._clock.now_ms() - self._silent_since_ms

    def lease_held(self) -> bool:
        """Whether this process may still believe that it is registered (R7)."""
        return self.term is not None and self.term.holds(self._clock.now_ms())

    async def keep_alive(self) -> None:
        """For ever: renew the lease, and register again when it was lost."""
        while True:
            term = self.term
            assert term is not None
            now_ms = self._clock.now_ms()
            await asyncio.sleep(max(0.02, (term.keep_alive_at_ms - now_ms) / 1000))
            if not self._making_progress():
                self._complain("this broker makes no progress: not renewing the lease (R6)")
                await asyncio.sleep(STALLED_S)
                continue
            sent_ms = self._clock.now_ms()
            try:
                async with asyncio.timeout(term.keep_alive_timeout_ms / 1000):
                    term.answered(sent_ms, await self._coordinator.keep_alive(term.lease_id))
                self._answered()
                if term.lost or self._must_register_again():
                    log.warning("this broker was fenced or its lease was lost; registering again")
                    # The lives matter only to a coordinator that was restored: it may know none but an earlier one.
                    await self.register(PreviousLife(0, clean=False, incarnations=self._lives))
            except (CoordinatorError, HeadraceError, TimeoutError, OSError) as problem:
                # OSError: a registration is written down first, and the disk may be full.
                self._not_answered(problem, sent_ms)
                await asyncio.sleep(RETRY_S)

    def _answered(self) -> None:
        if self._silent_since_ms is not None:
            log.warning("the coordinator answers again, after %d s", self.silence_ms() // 1000)
        self._silent_since_ms = self._complained = None

    def _not_answered(self, problem: Exception, sent_ms: int) -> None:
        """One line for each kind of trouble: an hour without a coordinator is no reason for 18,000 of them."""
        if self._silent_since_ms is None and isinstance(problem, (CoordinatorError, TimeoutError)):
            self._silent_since_ms = sent_ms
        self._complain(f"keep-alive: {str(problem) or 'no answer in time'}")

    def _complain(self, what: str) -> None:
        if what != self._complained:
            log.error("%s", what)
            self._complained = what

    async def leave(self) -> None:
        """End the lease now, so that nobody has to wait for it."""
        if self.term is not None:
            try:
                async with asyncio.timeout(2):
                    await self._coordinator.revoke(self.term.lease_id)
            except (CoordinatorError, TimeoutError):
                log.info("the lease will end by itself")
