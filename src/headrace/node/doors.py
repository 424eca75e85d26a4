"""Driver: the ways into a node. HTTP from the first moment, with health, metrics and the console's page; the others when there is a broker behind them."""

from __future__ import annotations

from functools import partial

from headrace import __version__
from headrace.broker.happenings import Observer
from headrace.broker.metadata import Metadata
from headrace.broker.queueing.cron import CronSchedule
from headrace.broker.runtime import Runtime
from headrace.broker.services import Services
from headrace.cluster.image import ClusterImage
from headrace.core.cluster_key import RECEIPTS, derive
from headrace.http.ailments import Ailments
from headrace.http.before_after import BeforeAfter
from headrace.http.console.page import ConsoleDoor
from headrace.http.forwarding import Forwarder
from headrace.http.known import KnowingRouter
from headrace.http.messages import Request, Response
from headrace.http.metrics import Collectors, MetricsDoor
from headrace.http.peer_calls import PeerCallDoor
from headrace.http.peer_requests import PeerRequests
from headrace.http.problem import problem
from headrace.http.rest.about import AboutDoor
from headrace.http.rest.acls import AclDoor
from headrace.http.rest.denials import DenialDoor
from headrace.http.rest.doors import mount_rest
from headrace.http.rest.queue_explaining import QueueExplainDoor
from headrace.http.rest.sealing import SealingDoor
from headrace.http.rest.security import SecurityDoor
from headrace.http.rest.sessions import SessionDoor
from headrace.http.rest.tenants import TenantDoor
from headrace.http.rest.webhooks import WebhookDoor
from headrace.http.router import Router
from headrace.http.schemas.door import SchemaDoor
from headrace.http.schemas.words import RegistryRouter
from headrace.http.server import HttpServer
from headrace.http.sqs.call import SqsSettings
from headrace.http.sqs.door import SqsDoor
from headrace.http.sqs.host import SqsHost
from headrace.http.sqs.policies import QueuePolicies
from headrace.http.sqs.regions import Regions
from headrace.http.whole import Whole
from headrace.kafka.dispatch import Dispatcher
from headrace.kafka.server import KafkaServer
from headrace.node.broker_metrics import BrokerMetrics
from headrace.node.browser_rules import browser_policy
from headrace.node.cluster_key import reseal_shared_key
from headrace.node.gatekeeper import Gatekeeper
from headrace.node.health import Health
from headrace.node.process_metrics import ProcessMetrics
from headrace.node.securing import NodeTls, OpenDoors
from headrace.node.settings import Settings
from headrace.node.tracing import NodeSpans
from headrace.node.vitals import Vitals
from headrace.node.webhook_rules import webhook_rules
from headrace.push.couriers import Couriers
from headrace.security.audit_log import AuditLog
from headrace.security.desk import Security
from headrace.security.resealing import Resealing
from headrace.security.rights import Operation, Resource


class Doors:
    kafka: KafkaServer
    webhooks: Couriers
    security: Security
    audit_log: AuditLog
    peer_requests: PeerRequests

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        health: Health,
        gatekeeper: Gatekeeper,
        tls: NodeTls | None,
        image: ClusterImage,
        spans: NodeSpans | None = None,
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._health = health
        self._gatekeeper = gatekeeper
        self._tls = tls
        self._spans = spans
        self._router = router = Router(gatekeeper.http if spans is None else spans.before(gatekeeper.http))
        router.otherwise = self._answer_not_yet
        self._registry = registry = Collectors()
        health.door.mount(router)
        MetricsDoor(registry).mount(router)
        self._console = ConsoleDoor(__version__, is_on=settings.console)
        self._console.mount(router)
        self.http = HttpServer(
            router,
            runtime.clock,
            browsers=browser_policy(settings, image),
            request_id_prefix=runtime.random_bytes(4).hex(),
            recognize=gatekeeper.logins.by_certificate,
        )
        self._own_servers: list[HttpServer] = []
        """Of the schema registry, where it has a port to itself."""
        registry.add(health)
        registry.add(self.http)
        registry.add(ProcessMetrics())
        if tls is not None:
            registry.add(tls)

    def _answer_not_yet(self, request: Request) -> Response:
        detail = f"this broker does not serve yet: {self._health.phase or 'it has just begun to'}"
        return problem(503, "NOT_READY", detail, request_id=request.request_id, instance=request.path)

    async def bind_http(self) -> int:
        """The port."""
        host, port = self._settings.host, self._settings.http_port
        if self._tls is None:
            return (await self.http.start(host, port))[1]
        return (await self.http.start_at(self._tls.doorway, host, port))[1]

    async def bind_registry(self) -> None:
        """Where it was asked for."""
        host, port = self._settings.host, self._settings.schema_registry_port
        if self._tls is None:
            for server in self._own_servers:
                await server.start(host, port)
        else:
            for server in self._own_servers:
                await server.start_at(self._tls.doorway, host, port)

    async def stop_http(self) -> None:
        for server in (*self._own_servers, self.http):
            await server.stop(grace_ms=500)

    async def bind_kafka(self) -> int:
        """The port. Whoever connects waits until it is served."""
        doorway = None if self._tls is None else self._tls.doorway
        return await self.kafka.bind(self._settings.host, self._settings.kafka_port, doorway)

    def opened(self) -> None:
        """Everything has its door: what has none is not there."""
        self._router.otherwise = None

    def open(self, services: Services, metadata: Metadata, cluster_key: bytes) -> None:
        self.security = self._gatekeeper.join(metadata)
        self._gatekeeper.http.meter.quotas = services.quotas
        self._open_kafka(services, metadata)
        forwarder = self._open_to_peers(services, cluster_key)
        # Every broker of the cluster must know the handles that another one gave out (R56).
        receipt_key = derive(cluster_key, RECEIPTS)
        self._open_sqs(services, metadata, forwarder, receipt_key)
        whole = Whole(self._runtime.clock, services.broker.image, services.sampler, self.peer_requests)
        whole.mount(self._router)
        observer = Observer(
            self._runtime.clock, services.broker.image, services.sampler, self._health.door.look
        )
        metadata.listeners.append(observer.heard)
        services.sampler.on_tick.append(observer.look)
        standing = self.security.standing
        mount_rest(self._router, services, forwarder, whole, receipt_key, __version__, standing, observer)
        services.cron.refusal = self._cron_refusal
        services.queue_rooms.moves.refusal = self._move_refusal
        self._open_schemas(services)
        self._open_about(services, metadata)
        self._open_webhooks(services, metadata, forwarder)
        self._open_sealing(services, metadata)
        QueueExplainDoor(
            self._runtime.clock, services.queues, services.sampler, whole, self.webhooks, services.troubles
        ).mount(KnowingRouter(self._router, services.latest))
        self._gatekeeper.http.look = BeforeAfter(self._router).look

    def _cron_refusal(self, schedule: CronSchedule) -> str:
        needed = [(Operation.WRITE, Resource.TOPIC, schedule.topic)]
        return self.security.standing.problem(schedule.owner, schedule.owner_life, needed)

    def _move_refusal(self, owner: str, owner_life: str, topic: str) -> str:
        needed = [(Operation.WRITE, Resource.TOPIC, topic)]
        return self.security.standing.problem(owner, owner_life, needed)

    def _open_kafka(self, services: Services, metadata: Metadata) -> None:
        broker, registry, gatekeeper = services.broker, self._registry, self._gatekeeper
        admin = self.security.admin
        services.groups.sees = admin.image.shows
        admin.on_revoked += [services.connections.close_user, self.http.close_user]
        self.kafka = KafkaServer(
            self._runtime,
            broker.image,
            services.connections,
            Dispatcher(services, self.security),
            gatekeeper.logins,
        )
        registry.add(BrokerMetrics(services, self.kafka))
        self.audit_log = AuditLog(
            self._runtime, metadata, services.topics, broker.partitions, gatekeeper.audit
        )
        registry.add(self.audit_log)
        openness = OpenDoors(self._settings, gatekeeper.image)
        registry.add(openness)
        self._health.door.openness = openness.word
        self._health.security = gatekeeper.image

    def _open_to_peers(self, services: Services, cluster_key: bytes) -> Forwarder:
        broker = services.broker
        self.peer_requests = PeerRequests(
            self._runtime,
            broker.image,
            broker.introductions,
            cluster_key,
            None if self._tls is None else self._tls.peers,
        )
        self.http.judge_peer = self.peer_requests.judge
        peer_calls = PeerCallDoor(
            broker.image,
            services.queue_rooms.lives,
            services.queue_rooms.answers,
            services.share_offsets,
            services.latest,
            self.peer_requests,
        )
        peer_calls.mount(self._router)
        services.queue_rooms.caller.peers = peer_calls
        return Forwarder(broker.node_id, self.peer_requests)

    def _open_sqs(
        self, services: Services, metadata: Metadata, forwarder: Forwarder, receipt_key: bytes
    ) -> None:
        settings, broker, rooms = self._settings, services.broker, services.queue_rooms
        sqs = SqsSettings(
            account=settings.sqs_account,
            regions=Regions(settings.sqs_region, settings.sqs_regions == "separate"),
            receipt_key=receipt_key,
            strict=settings.sqs_strict,
            tls_only=self._tls is not None and settings.plaintext_policy == "refuse",
        )
        policies = QueuePolicies(self._gatekeeper.image, sqs)
        policies.load(metadata.image.opaque("queues"))
        metadata.listeners.append(policies.heard)
        host = SqsHost(
            self._runtime,
            broker.node_id,
            broker.new_uuid,
            services.latest,
            services.queues,
            rooms.catalog,
            rooms.moves,
            services.writers,
            self.security.standing,
        )
        guard, keys = self._gatekeeper.http, self._gatekeeper.keys
        door = SqsDoor(host, sqs, forwarder, self._console.front, guard, keys)
        if self._spans is not None:
            door.told = self._spans.before(guard).sqs
        door.mount(self._router)

    def _open_schemas(self, services: Services) -> None:
        door = SchemaDoor(services.schemas)
        door.mount(RegistryRouter(self._router, services.latest), "/schemas")
        self._registry.add(services.schemas)
        if self._settings.schema_registry_port:
            router = Router(self._gatekeeper.http)
            door.mount(RegistryRouter(router, services.latest), "")
            server = HttpServer(
                router,
                self._runtime.clock,
                browsers=self.http.browsers,
                request_id_prefix=self._runtime.random_bytes(4).hex(),
                recognize=self._gatekeeper.logins.by_certificate,
            )
            self._own_servers.append(server)

    def _open_about(self, services: Services, metadata: Metadata) -> None:
        clock, image = self._runtime.clock, services.broker.image
        ailments = Ailments(clock, image, self._health.door.look)
        metadata.listeners.append(ailments.heard)
        services.sampler.on_tick.append(ailments.tick)
        now, flusher = services.sampler.lately.broker, services.broker.flusher
        kind = "embedded" if self._settings.is_coordinator_embedded else "etcd"
        vitals = Vitals(clock, self._health, flusher, now, kind, __version__)
        services.sampler.on_tick.append(vitals.note)
        AboutDoor(clock, image, ailments, __version__, console=self._settings.console).mount(self._router)
        SessionDoor(self._runtime, self.security, self._gatekeeper.http).mount(self._router)
        knowing = KnowingRouter(self._router, services.latest)
        TenantDoor(self.security, image, services.quotas, services.quota_admin).mount(knowing)
        denials = DenialDoor(self.security, clock, image, self.peer_requests)
        SecurityDoor(self.security, image.broker_id, denials).mount(knowing)
        AclDoor(self.security).mount(knowing)

    def _open_sealing(self, services: Services, metadata: Metadata) -> None:
        gatekeeper, registry = self._gatekeeper, self.webhooks.registry
        others = [registry.reseal]
        if gatekeeper.sealing is not None:
            gatekeeper.sealing.on_changed.append(registry.load)
            others.append(
                partial(reseal_shared_key, metadata, self._runtime.random_bytes, gatekeeper.sealing.sealer)
            )
        resealing = Resealing(self.security.admin, gatekeeper.keys, others)
        image = services.broker.image
        SealingDoor(self.security, resealing, image, self.peer_requests, gatekeeper.look_at_keys).mount(
            KnowingRouter(self._router, services.latest)
        )

    def _open_webhooks(self, services: Services, metadata: Metadata, forwarder: Forwarder) -> None:
        broker, rooms = services.broker, services.queue_rooms
        self.webhooks = Couriers(
            self._runtime,
            metadata,
            broker.replicas,
            services.queues,
            rooms,
            broker.new_uuid,
            webhook_rules(self._settings),
            ca_file=self._settings.webhook_ca_file,
            standing=self.security.standing,
            sealer=self._gatekeeper.sealer,
            spans=None if self._spans is None else self._spans.of_webhooks(),
        )
        WebhookDoor(
            self._runtime.clock,
            broker.image,
            broker.new_uuid,
            services.queues,
            rooms.catalog,
            self.webhooks,
            forwarder,
            self.security.standing,
        ).mount(KnowingRouter(self._router, services.latest))
        self._registry.add(self.webhooks)
