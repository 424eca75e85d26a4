"""Driver: one broker process: wires the parts, starts them in a safe order, stops them in the reverse one."""

from __future__ import annotations

import asyncio
import errno
import logging
import uuid
from functools import partial

from headrace import __version__
from headrace.broker.broker import Broker, BrokerOptions
from headrace.broker.controller import Controller
from headrace.broker.housekeeping import Housekeeping
from headrace.broker.metadata import Metadata
from headrace.broker.runtime import Runtime
from headrace.broker.services import Services
from headrace.broker.supervision import OR_END, RESTART, Supervised
from headrace.cluster import keys
from headrace.cluster.changes import Change, PutKey, absent
from headrace.cluster.image import ClusterImage
from headrace.cluster.membership import PreviousLife, announce_stop
from headrace.cluster.state import BrokerRegistration, ClusterState, encode
from headrace.coordinator.opening import open_coordinator
from headrace.coordinator.port import Coordinator, CoordinatorError
from headrace.core.errors import HeadraceError
from headrace.core.limits import KIB
from headrace.core.units import format_size
from headrace.groups.config import GroupConfig
from headrace.node.cluster_key import shared_key
from headrace.node.data_directory import DataDirectory, NodeRecord
from headrace.node.doors import Doors
from headrace.node.gatekeeper import Gatekeeper, lookups
from headrace.node.health import Health
from headrace.node.membership import Membership
from headrace.node.patience import Patience
from headrace.node.securing import (
    NodeTls,
    found_security,
    need_safe_mode,
)
from headrace.node.services import ServiceOptions, build_services
from headrace.node.settings import Settings
from headrace.node.static_configs import static_configs, without_credentials
from headrace.node.tracing import NodeSpans

log = logging.getLogger(__name__)

LEASE_MS = 6_000
LONELY_LEASE_MS = 60_000
"""Of a broker whose coordinator is a file of its own: nobody waits to take over, and a host that starves it for ten seconds
is no reason to lose every leadership, load and move task at once."""
START_ROOM_BYTES = 64 * KIB
ANNOUNCE_S = 5.0
HAND_OVER_S = 10.0


class Node:
    metadata: Metadata
    broker: Broker
    services: Services
    doors: Doors

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
        self._gatekeeper = Gatekeeper(
            settings,
            runtime,
            lambda: self._cluster_key,
            lookups(lambda: self.metadata, lambda: self.services, lambda: self.doors.webhooks),
        )
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
        self._spans = NodeSpans(settings) if settings.otlp_endpoint else None
        self.doors = Doors(
            settings, self.runtime, self.health, self._gatekeeper, self.tls, image, self._spans
        )
        # Bound first, as the other one below: a taken port must cost nothing, not even the clean-shutdown marker.
        self.http_port = await self.doors.bind_http()
        await self.patience.wait_for("there is room on the disk", self._make_directory)
        self._coordinator = self._given_coordinator or await self._open_coordinator()
        self.metadata = Metadata(self.runtime, self._coordinator, image)
        if self._given_coordinator is None and settings.is_coordinator_embedded:
            await self._know_cluster()
        else:
            await self.patience.wait_for("the coordinator answers", self._know_cluster)
        self.broker = self.health.broker = Broker(
            self.runtime,
            self.metadata,
            self._options(),
            lease_held=self._lease_held,
            on_disk_failed=self._disk_failed,
        )
        self.services = build_services(self.broker, self._service_options(), self.health.troubles)
        self._open_doors()
        await self.doors.bind_registry()
        admin = self.doors.security.admin
        if settings.secure:
            await found_security(settings, self.runtime, admin, self._gatekeeper.keys)
        need_safe_mode(settings, admin)
        record = await self._previous_record()
        self.kafka_port = await self.doors.bind_kafka()
        image.add_settings(self._places())
        self.doors.webhooks.refuse_ports({self.kafka_port, self.http_port})
        # R33: the marker is taken away before any log is opened.
        clean_epoch = self._directory.take_clean_marker()
        previous = None
        if record is not None:
            previous = PreviousLife(record.broker_epoch, clean_epoch == record.broker_epoch, record.lives)
            self._used_epoch, self._earlier = record.broker_epoch, record.lives
        self.broker.replicas.quarantine_unknown()
        await self._join(previous)
        await self._become_ready()
        self.doors.opened()
        self.health.phase = None

    def _open_doors(self) -> None:
        """The broker is built, and no log is open yet."""
        self.doors.open(self.services, self.metadata, self._cluster_key)

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
            clock=self.runtime.lease_clock,
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
                (absent(keys.CLUSTER),), (PutKey(keys.CLUSTER, encode(state)),), "the cluster is founded"
            )
            await self.metadata.commit(change, wait=False)
            await self.metadata.load()
        self._cluster_key = await shared_key(
            self.metadata, self.runtime.random_bytes, self._gatekeeper.sealer
        )

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

    def _places(self) -> dict[str, str]:
        """Where this broker is and where its data lies, under Kafka's names (F36)."""
        settings = self.settings
        advertised = settings.advertised_host or settings.host
        protocol = "PLAINTEXT" if self.tls is None else "SASL_SSL"
        log_dir = "memory:" if settings.ephemeral else self._directory.topics
        return {
            "listeners": f"{protocol}://{settings.host}:{self.kafka_port}",
            "advertised.listeners": f"{protocol}://{advertised}:{self.kafka_port}",
            "headrace.http.address": f"{'http' if self.tls is None else 'https'}://{advertised}:{self.http_port}",
            "log.dir": log_dir,
            "log.dirs": log_dir,
            "headrace.coordinator": without_credentials(self._coordinator_url()),
        }

    async def _join(self, previous: PreviousLife | None) -> None:
        settings = self.settings
        host = settings.advertised_host or settings.host
        registration = BrokerRegistration(
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
        if self._gatekeeper.sealing is not None:
            supervise("look at the keys of secrets", self._gatekeeper.sealing.watch)
        supervise(
            "last use of credentials",
            partial(self.doors.security.logins.last_use.run, self.doors.security.admin),
        )
        supervise("audit", self.doors.audit_log.run)
        if self._gatekeeper.issuers is not None:
            supervise("keys of the issuer", self._gatekeeper.issuers.run)
        supervise("queues in shape", self.services.queue_upkeep.run)
        supervise("webhooks", self.doors.webhooks.run, RESTART._replace(may_return=True))
        await self.patience.wait_until(
            "the controller lets this broker in",
            self.metadata,
            lambda: self.metadata.image.is_live(self.settings.node_id),
        )
        # At once: we may be elected from now on, and a leader that refuses connections is taken for dead.
        await self.doors.kafka.serve()
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

    def look_at_files(self) -> None:
        """At certificates and keys, now (SIGHUP), and not only every half minute."""
        if self.tls is not None:
            self.tls.reload()
        self._gatekeeper.look_at_keys()

    # -- stop --------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Clean: no new requests, leaderships handed over, everything synced, and a marker that says so (R33)."""
        self.health.phase = "stopping"
        self.broker.liveness.is_stopping = True
        await self.doors.webhooks.close()
        await self._hand_over_leaderships()
        await self.doors.kafka.close()
        await self.doors.stop_http()
        await self.doors.peer_requests.close()
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
        if self._spans is not None:
            await self._spans.close()

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
