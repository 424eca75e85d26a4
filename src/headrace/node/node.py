"""Driver: one broker process: wires the parts, starts them in a safe order, stops them in the reverse one."""

from __future__ import annotations

import asyncio
import errno
import logging
import uuid
from collections.abc import Sequence

from headrace import __version__
from headrace.broker.broker import Broker, BrokerOptions
from headrace.broker.controller import Controller
from headrace.broker.housekeeping import Housekeeping
from headrace.broker.metadata import Metadata
from headrace.broker.runtime import Runtime
from headrace.broker.supervision import OR_END, RESTART, Supervised
from headrace.cluster import keys
from headrace.cluster.changes import Change, Put, absent
from headrace.cluster.configs import NO_LAYERS, describe_broker
from headrace.cluster.group_defaults import CONSUMER_HEARTBEAT, CONSUMER_SESSION, Bounds
from headrace.cluster.image import ClusterImage
from headrace.cluster.membership import PreviousLife, announce_stop
from headrace.cluster.state import ClusterState, Registration, encode
from headrace.coordinator.opening import open_coordinator
from headrace.coordinator.port import Coordinator, CoordinatorError
from headrace.core.cluster_key import MADE_UP_USERS, RECEIPTS, derive
from headrace.core.errors import HeadraceError
from headrace.core.limits import KIB
from headrace.core.units import format_size
from headrace.groups.config import GroupConfig
from headrace.http.console.page import ConsoleDoor
from headrace.http.forwarding import Forwarder
from headrace.http.guarding import HttpGuard
from headrace.http.known import KnowingRouter
from headrace.http.messages import Request, Response
from headrace.http.metrics import MetricsDoor, Registry
from headrace.http.peer_calls import PeerCallDoor
from headrace.http.peer_requests import PeerRequests
from headrace.http.problem import problem
from headrace.http.rest.about import AboutDoor
from headrace.http.rest.doors import mount_rest
from headrace.http.rest.security import SecurityDoor
from headrace.http.rest.sessions import SessionDoor
from headrace.http.rest.webhooks import WebhookDoor
from headrace.http.router import Router
from headrace.http.server import HttpServer
from headrace.http.sqs.call import SqsSettings
from headrace.http.sqs.door import SqsDoor
from headrace.http.sqs.host import SqsHost
from headrace.http.sqs.policies import QueuePolicies
from headrace.kafka.dispatch import Dispatcher
from headrace.kafka.server import KafkaServer
from headrace.node.broker_metrics import BrokerMetrics
from headrace.node.browser_rules import browser_policy
from headrace.node.data_directory import DataDirectory, NodeRecord
from headrace.node.health import Health
from headrace.node.membership import Membership
from headrace.node.patience import Patience
from headrace.node.process_metrics import ProcessMetrics
from headrace.node.securing import (
    NodeTls,
    OpenDoors,
    connect_audit,
    found_security,
    key_ring,
    need_safe_mode,
    token_issuers,
)
from headrace.node.services import ServiceOptions, build_services
from headrace.node.settings import Settings
from headrace.node.webhook_rules import webhook_rules
from headrace.push.couriers import Couriers
from headrace.security.admin import SecurityAdmin
from headrace.security.audit import Audit
from headrace.security.audit_log import AuditLog
from headrace.security.denials import Denials
from headrace.security.desk import Security
from headrace.security.guard import Guard
from headrace.security.image import SecurityImage
from headrace.security.logins import Logins
from headrace.security.places import Lookups

log = logging.getLogger(__name__)

LEASE_MS = 6_000
LONELY_LEASE_MS = 60_000
"""Of a broker whose coordinator is a file of its own: nobody waits to take over, and a host that starves it for ten seconds
is no reason to lose every leadership, load and move task at once."""
START_ROOM_BYTES = 64 * KIB
ANNOUNCE_S = 5.0
HAND_OVER_S = 10.0


class Node:
    kafka: KafkaServer
    webhooks: Couriers

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        coordinator: Coordinator | None = None,
    ) -> None:
        self.settings = settings
        self.runtime = runtime
        self.kafka_port = 0
        self.http_port = 0
        self.health = Health(runtime)
        self.patience = Patience(self.health)
        self._given_coordinator = coordinator
        self._cluster_key = b""
        self._security_image = SecurityImage()
        self._denials = Denials(runtime.clock)
        self._audit = Audit(runtime.clock, settings.node_id)
        connect_audit(self._audit, self._security_image, self._denials)
        self._guard = Guard(self._security_image, self._lookups(), self._denials)
        self._issuers = token_issuers(settings, runtime)
        self._logins = Logins(
            runtime,
            self._security_image,
            lambda: derive(self._cluster_key, MADE_UP_USERS),
            self._audit,
            plain_without_tls=settings.allow_plain_without_tls,
            issuers=self._issuers,
            max_reauth_ms=settings.connections_max_reauth_ms,
        )
        self._http_guard = HttpGuard(self._guard, self._logins)
        self._keys = key_ring(settings, runtime, self._security_image)
        self.tls = NodeTls(settings, runtime) if settings.tls_cert else None
        self._directory = DataDirectory(runtime.fs, str(settings.directory().absolute()))
        self._incarnation = runtime.random_bytes(16).hex()
        self._used_epoch = 0
        self._earlier: tuple[str, ...] = ()
        self.broken = asyncio.Event()
        """Set when a vital task was given up: whoever started this node shall stop it."""
        self.broken_by: str | None = None
        runtime.supervisor.on_given_up = self._given_up

    # -- start -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Waits, and says so, while the coordinator is away or the disk is full: whoever starts a broker again that ended
        would only make it wait by other means."""
        settings = self.settings
        image = ClusterImage(settings.node_id, static_configs(settings))
        self._make_http(image)
        # Bound first, as the other one below: a taken port must cost nothing, not even the clean-shutdown marker.
        if self.tls is None:
            _, self.http_port = await self.http.start(settings.host, settings.http_port)
        else:
            _, self.http_port = await self.http.start_at(self.tls.doorway, settings.host, settings.http_port)
        await self.patience.wait_for("there is room on the disk", self._make_directory)
        self._coordinator = self._given_coordinator or await self._open_coordinator()
        self.metadata = Metadata(self.runtime, self._coordinator, image)
        if self._given_coordinator is None and settings.is_coordinator_embedded:
            await self._know_cluster()
        else:
            await self.patience.wait_for("the coordinator answers", self._know_cluster)
        # Every broker of the cluster must know the handles that another one gave out (R56).
        self._receipt_key = derive(self._cluster_key, RECEIPTS)
        self.broker = self.health.broker = Broker(
            self.runtime,
            self.metadata,
            self._options(),
            lease_held=self._lease_held,
            on_disk_failed=self._disk_failed,
        )
        self.services = build_services(self.broker, self._service_options(), self.health.troubles)
        self._make_doors()
        if settings.secure:
            await found_security(settings, self.runtime, self.security.admin, self._keys)
        need_safe_mode(settings, self.security.admin)
        record = await self._previous_record()
        self.kafka_port = await self.kafka.bind(
            settings.host, settings.kafka_port, None if self.tls is None else self.tls.doorway
        )
        image.add_settings(self._places())
        self.webhooks.refuse_ports({self.kafka_port, self.http_port})
        # R33: the marker is taken away before any log is opened.
        clean_epoch = self._directory.take_clean_marker()
        previous = None
        if record is not None:
            previous = PreviousLife(record.broker_epoch, clean_epoch == record.broker_epoch, record.lives)
            self._used_epoch, self._earlier = record.broker_epoch, record.lives
        self.broker.replicas.quarantine_unknown()
        await self._join(previous)
        await self._become_ready()
        self._router.otherwise = None
        self.health.phase = None

    @property
    def ready(self) -> bool:
        return self.health.phase is None

    async def _make_directory(self) -> None:
        """What a start writes is little, but it must not be torn (S15)."""
        fs = self.runtime.fs
        self._directory.make()
        if (free := fs.free_bytes(self._directory.path)) < START_ROOM_BYTES:
            raise OSError(errno.ENOSPC, f"only {format_size(free)} left", self._directory.path)

    async def _open_coordinator(self) -> Coordinator:
        return await open_coordinator(
            self._coordinator_url(),
            clock=self.runtime.clock,
            run_blocking=self.runtime.run_blocking,
            token_bytes=self.runtime.random_bytes,
            is_own=self._is_alone,
        )

    def _coordinator_url(self) -> str:
        if self.settings.coordinator:
            return self.settings.coordinator
        if self.settings.ephemeral:
            return "memory:"
        return f"sqlite://{self._directory.path}/coordinator.db"

    async def _know_cluster(self) -> None:
        """The first broker names the cluster and makes its key; everybody after it finds them."""
        await self.metadata.load()
        while self.metadata.image.cluster is None:
            cluster_id = str(uuid.UUID(bytes=self.runtime.random_bytes(16), version=4))
            state = ClusterState(cluster_id, self.runtime.clock.wall_ms())
            change = Change(
                (absent(keys.CLUSTER),), (Put(keys.CLUSTER, encode(state)),), "the cluster is founded"
            )
            await self.metadata.commit(change, wait=False)
            await self.metadata.load()
        self._cluster_key = await self.metadata.shared_secret("cluster")

    async def _previous_record(self) -> NodeRecord | None:
        if self.settings.ephemeral:
            return None
        record = self._directory.read_record()
        cluster = self.metadata.image.cluster
        assert cluster is not None
        self._directory.check(record, cluster.cluster_id, self.settings.node_id)
        if record is not None:
            self.metadata.was_at(record.coordinator_was_at)
        if record is not None and record.lease:
            # The lock on the directory proves that our earlier life is over: nobody has to wait for its lease.
            try:
                await self._coordinator.revoke(record.lease)
                await self.metadata.load()
            except CoordinatorError as problem:
                log.info("the lease of the earlier life will end by itself: %s", problem)
        return record

    def _options(self) -> BrokerOptions:
        settings = self.settings
        return BrokerOptions(
            log_dir=self._directory.topics,
            cluster_key=self._cluster_key,
            ephemeral=settings.ephemeral,
            repair=settings.repair,
            disk_reserve_bytes=settings.disk_reserve_bytes,
            peer_tls=None if self.tls is None else self.tls.peers,
        )

    def _service_options(self) -> ServiceOptions:
        settings = self.settings
        return ServiceOptions(
            auto_create_topics=settings.auto_create_topics,
            offsets_partitions=settings.offsets_partitions,
            internal_replication_factor=max(3, settings.default_replication_factor),
            connection_fencing=settings.transaction_connection_fencing,
            groups=GroupConfig(
                min_session_timeout_ms=settings.group_min_session_timeout_ms,
                max_session_timeout_ms=settings.group_max_session_timeout_ms,
                initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            ),
        )

    def _make_http(self, image: ClusterImage) -> None:
        """With the doors that are open from the first moment; the others follow when there is a broker behind them."""
        self._router = router = Router(self._http_guard)
        router.otherwise = self._answer_not_yet
        self._registry = registry = Registry()
        self.health.door.mount(router)
        MetricsDoor(registry).mount(router)
        self._console = ConsoleDoor(__version__, is_on=self.settings.console)
        self._console.mount(router)
        self.http = HttpServer(
            router,
            self.runtime.clock,
            browsers=browser_policy(self.settings, image),
            request_id_prefix=self.runtime.random_bytes(4).hex(),
        )
        registry.add(self.health)
        registry.add(self.http)
        registry.add(ProcessMetrics())
        if self.tls is not None:
            registry.add(self.tls)

    def _answer_not_yet(self, request: Request) -> Response:
        detail = f"this broker does not serve yet: {self.health.phase or 'it has just begun to'}"
        return problem(503, "NOT_READY", detail, request_id=request.request_id, instance=request.path)

    def _make_doors(self) -> None:
        router, registry = self._router, self._registry
        services, broker = self.services, self.broker
        self.security = Security(
            self._security_image,
            SecurityAdmin(self.runtime, self.metadata, self._security_image, self._audit),
            self._logins,
            self._guard,
            self._denials,
            self._keys,
        )
        admin = self.security.admin
        self.metadata.listeners.append(admin.heard)
        services.groups.sees = admin.image.shows
        admin.on_revoked += [services.connections.close_user, self.http.close_user]
        self.kafka = KafkaServer(
            self.runtime,
            broker.image,
            services.connections,
            Dispatcher(services, self.security),
            self._logins,
        )
        registry.add(BrokerMetrics(services, self.kafka))
        self._audit_log = AuditLog(
            self.runtime, self.metadata, services.topics, broker.partitions, self._audit
        )
        registry.add(self._audit_log)
        registry.add(OpenDoors(self.settings, self._security_image))
        sqs = self._sqs_settings()
        self._peer_requests = PeerRequests(
            self.runtime,
            broker.image,
            broker.introductions,
            self._cluster_key,
            None if self.tls is None else self.tls.peers,
        )
        self.http.judge_peer = self._peer_requests.judge
        forwarder = Forwarder(broker.node_id, self._peer_requests)
        peer_calls = PeerCallDoor(
            broker.image,
            services.queue_rooms.answers,
            services.share_offsets,
            services.latest,
            self._peer_requests,
        )
        peer_calls.mount(router)
        rooms = services.queue_rooms
        rooms.caller.peers = peer_calls
        policies = QueuePolicies(self._security_image, sqs)
        policies.load(self.metadata.image.opaque("queues"))
        self.metadata.listeners.append(policies.heard)
        sqs_host = SqsHost(
            self.runtime,
            broker.node_id,
            broker.new_uuid,
            services.latest,
            services.queues,
            rooms.catalog,
            rooms.moves,
        )
        SqsDoor(sqs_host, sqs, forwarder, self._console.front, self._http_guard, self.security.keys).mount(
            router
        )
        mount_rest(router, services, forwarder, sqs.receipt_key, __version__)
        AboutDoor(
            self.runtime.clock,
            broker.image,
            self.health.door.look,
            __version__,
            console=self.settings.console,
        ).mount(router)
        SessionDoor(self.runtime, self.security, self._http_guard).mount(router)
        SecurityDoor(self.security, self.runtime.clock, broker.image.broker_id).mount(
            KnowingRouter(router, services.latest)
        )
        self.webhooks = Couriers(
            self.runtime,
            self.metadata,
            broker.replicas,
            services.queues,
            rooms,
            broker.new_uuid,
            webhook_rules(self.settings),
            ca_file=self.settings.webhook_ca_file,
        )
        WebhookDoor(
            self.runtime.clock,
            broker.image,
            broker.new_uuid,
            services.queues,
            rooms.catalog,
            self.webhooks,
            forwarder,
        ).mount(KnowingRouter(router, services.latest))
        registry.add(self.webhooks)

    def _lookups(self) -> Lookups:
        """What requests do not say themselves, for the guard. Asked when there are services."""

        def topic_by_id(topic_id: bytes) -> str | None:
            topic = self.metadata.image.topic_by_id(topic_id)
            return None if topic is None else topic.name

        def topics_of(queue: str) -> Sequence[str]:
            spec = self.services.queues.find(queue)
            return (queue,) if spec is None else spec.topics

        def queue_of(webhook: str) -> str | None:
            spec = self.webhooks.registry.find(webhook)
            return None if spec is None else spec.queue

        def source_of(task: str) -> str | None:
            found = self.services.queue_rooms.moves.find(task)
            return None if found is None else found.source

        def is_topic(name: str) -> bool:
            return self.metadata.image.topic(name) is not None

        return Lookups(topic_by_id, topics_of, queue_of, source_of, is_topic)

    def _sqs_settings(self) -> SqsSettings:
        settings = self.settings
        return SqsSettings(
            account=settings.sqs_account,
            region=settings.sqs_region,
            receipt_key=self._receipt_key,
            strict=settings.sqs_strict,
            tls_only=self.tls is not None and settings.plaintext_policy == "refuse",
        )

    def _places(self) -> dict[str, str]:
        """Where this broker is and where its data lies, under Kafka's names (F36)."""
        settings = self.settings
        advertised = settings.advertised_host or settings.host
        protocol = "PLAINTEXT" if self.tls is None else "SASL_SSL"
        return {
            "listeners": f"{protocol}://{settings.host}:{self.kafka_port}",
            "advertised.listeners": f"{protocol}://{advertised}:{self.kafka_port}",
            "log.dir": self._directory.topics,
            "log.dirs": self._directory.topics,
            "headrace.coordinator": without_credentials(self._coordinator_url()),
        }

    async def _join(self, previous: PreviousLife | None) -> None:
        settings = self.settings
        host = settings.advertised_host or settings.host
        registration = Registration(
            host=host,
            port=self.kafka_port,
            http_host=host,
            http_port=self.http_port,
            incarnation=self._incarnation,
            rack=settings.rack or None,
            version=__version__,
            started_ms=self.runtime.clock.wall_ms(),
        )
        self.membership = Membership(
            self.runtime,
            self.metadata,
            registration,
            ttl_ms=LONELY_LEASE_MS if self._is_alone else LEASE_MS,
            durable=settings.flush == "commit",
            making_progress=self._makes_progress,
            lives=self._earlier,
        )
        self.controller = Controller(self.runtime, self.metadata, settings.node_id)
        self.membership.on_registering.append(self._registering)
        self.membership.on_registered.append(self._registered)
        self.metadata.start()
        await self.patience.wait_for(
            "the coordinator takes the registration", lambda: self.membership.register(previous)
        )
        self.health.membership = self.membership

    @property
    def _is_alone(self) -> bool:
        """The coordinator is a file in our own directory, or our own memory."""
        return self._given_coordinator is None and not self.settings.coordinator

    def _registering(self, lease: int) -> None:
        """On disk before anybody else can see us: the next life finds our lease and can end it."""
        self._write_record(self._used_epoch, lease)

    def _write_record(self, broker_epoch: int, lease: int) -> None:
        if not self.settings.ephemeral:
            node_id = self.settings.node_id
            self._directory.write_record(
                NodeRecord(
                    self.broker.cluster_id,
                    node_id,
                    broker_epoch,
                    lease,
                    self._incarnation,
                    self._earlier,
                    self.metadata.revision,
                )
            )

    def _registered(self, broker_epoch: int, lease: int) -> None:
        # R33: on disk before the logs are used, so that the next life can tell whose marker it finds.
        self._used_epoch = broker_epoch
        self._write_record(broker_epoch, lease)
        self.broker.replicas.broker_epoch = broker_epoch
        self.broker.introductions.broker_epoch = broker_epoch
        self.controller.registered(broker_epoch, lease)

    def _disk_failed(self) -> None:
        """S7: others must lead from now on. The lease is no longer renewed, and we say so before it ends."""
        self.runtime.spawn(self._announce_stop(), "give up leaderships")

    def _given_up(self, task: Supervised) -> None:
        """A task without which this is no broker can't be kept alive: others must lead, and whoever started us must know."""
        self.broken_by = f"{task.name} failed {task.in_a_row} times in a row: {task.problem}"
        log.critical("this broker ends: %s", self.broken_by)
        self.health.phase = self.broken_by
        self.runtime.spawn(self._announce_stop(), "give up leaderships")
        self.broken.set()

    def _lease_held(self) -> bool:
        """Not before we have one."""
        return self.health.membership is not None and self.health.membership.lease_held()

    def _makes_progress(self) -> bool:
        """R6: whether this broker deserves its lease: its disk moves, and nothing that a broker needs was given up."""
        return self.broken_by is None and self.broker.flusher.trouble() is None

    async def _become_ready(self) -> None:
        supervise = self.runtime.supervise
        self._background = [
            supervise("keep the lease", self.membership.keep_alive, OR_END),
            supervise("controller", self.controller.run),
        ]
        self.services.groups.look_at_topics()
        self.broker.replicas.look_at_everything()
        supervise("follow the image", self.broker.replicas.run, OR_END)
        # It returns when a sync has failed: the directory is out of service then, and the lease not renewed (S7).
        supervise("group commit", self.broker.flusher.run, OR_END._replace(may_return=True))
        housekeeping = Housekeeping(
            self.runtime,
            self.broker.replicas,
            self.broker.image,
            self.services.groups,
            self.services.queue_rooms.local,
            self._lease_held,
            clean_ms=self.settings.retention_check_interval_ms,
        )
        self.health.housekeeping = housekeeping
        supervise("watch the clock", housekeeping.watch_the_clock, OR_END)
        supervise("housekeeping", housekeeping.run)
        supervise("history", self.services.sampler.run)
        supervise("cron schedules", self.services.cron.run)
        if self.tls is not None:
            supervise("look at the certificate", self.tls.watch)
        supervise("audit", self._audit_log.run)
        if self._issuers is not None:
            supervise("keys of the issuer", self._issuers.run)
        supervise("queues in shape", self.services.queue_upkeep.run)
        supervise("webhooks", self.webhooks.run, RESTART._replace(may_return=True))
        await self.patience.wait_until(
            "the controller lets this broker in",
            self.metadata,
            lambda: self.metadata.image.is_live(self.settings.node_id),
        )
        # At once: we may be elected from now on, and a leader that refuses connections is taken for dead.
        await self.kafka.serve()
        await self.patience.wait_until("its partitions are given back to it", self.metadata, self._led)
        await self.broker.replicas.caught_up()

    def _led(self) -> bool:
        """Every partition that lives on this broker alone has been given back to it."""
        me = self.settings.node_id
        return all(
            state.leader == me
            for topic, number, state in self.metadata.image.all_partitions()
            # One that can't be opened is nobody's to wait for: it is told (health), and the others serve.
            if state.replicas == (me,) and (topic.name, number) not in self.broker.replicas.offline
        )

    # -- stop --------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Clean: no new requests, leaderships handed over, everything synced, and a marker that says so (R33)."""
        self.health.phase = "stopping"
        self.broker.liveness.is_stopping = True
        await self.webhooks.close()
        await self._hand_over_leaderships()
        await self.kafka.close()
        await self.http.stop(grace_ms=500)
        await self._peer_requests.close()
        for task in self._background:
            task.cancel()
        await self.broker.flusher.flush_now()
        clean = self.broker.flusher.failure is None and self.broken_by is None
        await self.broker.replicas.close(clean=clean)
        await self.membership.leave()
        if clean and not self.settings.ephemeral:
            term = self.membership.term
            self._write_record(self.membership.broker_epoch, 0 if term is None else term.lease_id)
            self._directory.mark_clean(self.membership.broker_epoch)
        self.metadata.stop()
        await self._coordinator.close()

    async def _hand_over_leaderships(self) -> None:
        """R33: while we still serve, the controller gives our partitions to others; clients hardly notice."""
        if not await self._announce_stop():
            return
        image, me = self.metadata.image, self.settings.node_id
        if not any(node.id != me for node in image.live_brokers()):
            return
        try:
            await self.metadata.wait_until(
                lambda: all(state.leader != me for _, _, state in image.all_partitions()), HAND_OVER_S
            )
            await self.broker.replicas.caught_up()
        except HeadraceError:
            log.warning("stopping although this broker still leads partitions: nobody took them in time")

    async def _announce_stop(self) -> bool:
        change = announce_stop(self.metadata.image, self.settings.node_id)
        if change is None:
            return False
        try:
            async with asyncio.timeout(ANNOUNCE_S):
                return (await self.metadata.commit(change)).succeeded
        except (HeadraceError, TimeoutError) as problem:
            log.warning("could not announce the stop: %s", problem)
            return False


def static_configs(settings: Settings) -> dict[str, str]:
    """The settings of this broker under Kafka's names, as DescribeConfigs shows them.

    What says the same as the default is left out: its source is the default, and clients compare by source.
    """
    given = {
        "node.id": str(settings.node_id),
        "broker.id": str(settings.node_id),
        "auto.create.topics.enable": str(settings.auto_create_topics).lower(),
        "num.partitions": str(settings.num_partitions),
        "default.replication.factor": str(settings.default_replication_factor),
        "log.retention.ms": str(settings.retention_ms),
        "log.segment.bytes": str(settings.segment_bytes),
        "log.roll.ms": str(settings.segment_ms),
        "message.max.bytes": str(settings.max_message_bytes),
        "offsets.topic.num.partitions": str(settings.offsets_partitions),
        "offsets.topic.replication.factor": str(max(3, settings.default_replication_factor)),
        "transaction.state.log.num.partitions": str(settings.offsets_partitions),
        "transaction.state.log.replication.factor": str(max(3, settings.default_replication_factor)),
        "group.initial.rebalance.delay.ms": str(settings.group_initial_rebalance_delay_ms),
        "group.min.session.timeout.ms": str(settings.group_min_session_timeout_ms),
        "group.max.session.timeout.ms": str(settings.group_max_session_timeout_ms),
        "group.consumer.session.timeout.ms": str(settings.group_consumer_session_timeout_ms),
        "group.consumer.heartbeat.interval.ms": str(settings.group_consumer_heartbeat_interval_ms),
        **_bounds_around(CONSUMER_SESSION, settings.group_consumer_session_timeout_ms),
        **_bounds_around(CONSUMER_HEARTBEAT, settings.group_consumer_heartbeat_interval_ms),
        "log.retention.check.interval.ms": str(settings.retention_check_interval_ms),
        "log.flush.interval.ms": str(settings.flush_interval_ms),
        "headrace.flush": settings.flush,
    }
    if settings.rack:
        given["broker.rack"] = settings.rack
    defaults = {entry.name: entry.value for entry in describe_broker(NO_LAYERS, given)}
    return {name: value for name, value in given.items() if value != defaults.get(name)}


def _bounds_around(bounds: Bounds, setting: int) -> dict[str, str]:
    """A setting may lie where no group could set it: then groups may, too."""
    assert bounds.low is not None and bounds.low.default is not None and bounds.high.default is not None
    return {
        bounds.low.name: str(min(setting, int(bounds.low.default))),
        bounds.high.name: str(max(setting, int(bounds.high.default))),
    }


def without_credentials(url: str) -> str:
    """A coordinator's URL as anybody may see it."""
    scheme, slashes, rest = url.partition("://")
    return scheme + slashes + rest.rpartition("@")[2]
