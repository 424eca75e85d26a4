"""Driver: who comes to the doors of a node and what they may: there from the first moment, complete when there is a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.broker.metadata import Metadata
from headrace.broker.runtime import Runtime
from headrace.broker.services import Services
from headrace.core.cluster_key import MADE_UP_USERS, derive
from headrace.http.guarding import HttpGuard
from headrace.http.idling import Idling
from headrace.http.metering import Meter
from headrace.node.sealing_file import SealingFile
from headrace.node.securing import certificate_rules, connect_audit, key_ring, token_issuers
from headrace.node.settings import Settings
from headrace.push.couriers import Couriers
from headrace.security.admin import SecurityAdmin
from headrace.security.audit import AuditTrail
from headrace.security.delegation import Delegation
from headrace.security.denials import Denials
from headrace.security.desk import Security
from headrace.security.guard import Guard
from headrace.security.image import SecurityImage
from headrace.security.logins import Logins
from headrace.security.places import Lookups
from headrace.security.standing import StandingOrders


class Gatekeeper:
    def __init__(
        self, settings: Settings, runtime: Runtime, cluster_key: Callable[[], bytes], lookups: Lookups
    ) -> None:
        """Raises INVALID_CONFIG."""
        self._runtime = runtime
        self.image = SecurityImage()
        self.audit = AuditTrail(runtime.clock, settings.node_id)
        self._denials = Denials(runtime.clock)
        connect_audit(self.audit, self.image, self._denials)
        self._guard = Guard(self.image, lookups, self._denials)
        self.issuers = token_issuers(settings, runtime)
        self.logins = Logins(
            runtime,
            self.image,
            lambda: derive(cluster_key(), MADE_UP_USERS),
            self.audit,
            plain_without_tls=settings.allow_plain_without_tls,
            issuers=self.issuers,
            max_reauth_ms=settings.connections_max_reauth_ms,
            certificate_rules=certificate_rules(settings),
        )
        self.http = HttpGuard(
            self._guard, self.logins, Meter(runtime.clock), Idling(runtime.clock, settings.console_idle_ms)
        )
        self.sealing = SealingFile(settings.secrets_key_file) if settings.secrets_key_file else None
        self.sealer = None if self.sealing is None else self.sealing.sealer
        self.keys = key_ring(settings, runtime, self.image, self.sealer)

    def look_at_keys(self) -> None:
        """Other keys may seal and open secrets from now on."""
        if self.sealing is not None:
            self.sealing.look()

    def join(self, metadata: Metadata) -> Security:
        """From now on it knows what the cluster knows."""
        admin = SecurityAdmin(self._runtime, metadata, self.image, self.audit)
        metadata.listeners.append(admin.heard)
        standing = StandingOrders(self.image, self._denials)
        delegation = Delegation(self._runtime, admin, self.keys)
        return Security(
            self.image, admin, self.logins, self._guard, self._denials, self.keys, standing, delegation
        )


def lookups(
    metadata: Callable[[], Metadata], services: Callable[[], Services], webhooks: Callable[[], Couriers]
) -> Lookups:
    """What requests do not say themselves, for the guard. Asked when there are services."""

    def topic_by_id(topic_id: bytes) -> str | None:
        topic = metadata().image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def topics_of(queue: str) -> Sequence[str]:
        spec = services().queues.find(queue)
        return (queue,) if spec is None else spec.topics

    def queue_of(webhook: str) -> str | None:
        spec = webhooks().registry.find(webhook)
        return None if spec is None else spec.queue

    def source_of(task: str) -> str | None:
        found = services().queue_rooms.moves.find(task)
        return None if found is None else found.source

    def is_topic(name: str) -> bool:
        return metadata().image.topic(name) is not None

    return Lookups(topic_by_id, topics_of, queue_of, source_of, is_topic)
