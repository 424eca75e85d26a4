"""Driver: how this broker is. One list of checks is behind /readyz, a metric, `doctor` and `cluster status` (F16, F47).

A check that fails takes the broker out of service; one in trouble (Degraded) is told and no more, because sending requests
elsewhere would not help. Each looks at what others keep: none waits, none touches a disk.

    broker        it starts (and what it waits for), stops, or a vital task was given up
    disk          the log directory failed (S7), or is nearly full: writes are refused (S15)
    log           a sync hangs, or appends wait for a group commit that does not come; the lease is given up too (R6)
    tasks         a vital task has just failed and is started again
    coordinator   no answer; fails once the lease has run out, because then nothing may be read here (R7)
    replication   replicas that are offline, or followers that take nothing
    background    a task without which this is still a broker keeps failing
    security      what is known about users and rights is old, or can't be read (A30, A51)
    loop          the event loop stood still
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.broker import Broker
from headrace.broker.housekeeping import Housekeeping
from headrace.broker.runtime import Runtime
from headrace.core.measures import Family, Sample, gauge
from headrace.http.health import Degraded, HealthDoor
from headrace.node.membership import Membership
from headrace.security.image import SecurityImage

SLOW_LOOP_MS = 500
OLD_RIGHTS_MS = 30_000
NAMED = 3
"""So many replicas in trouble are named; of the others there is a number."""

OK, IN_TROUBLE, NOT_READY = 0, 1, 2


class Health:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.phase: str | None = "starting"
        """What keeps it from serving, in a few words; None once it serves."""
        self.broker: Broker | None = None
        self.membership: Membership | None = None
        self.housekeeping: Housekeeping | None = None
        self.security: SecurityImage | None = None
        self.door = HealthDoor(
            ready={
                "broker": lambda: self.phase,
                "disk": self._disk,
                "log": self._log,
                "tasks": self._vital_tasks,
                "coordinator": self._coordinator,
                "replication": self._replication,
                "background": self._other_tasks,
                "security": self._security,
                "loop": self._loop,
            }
        )

    def troubles(self) -> list[str]:
        """Everything that lasts and is not as it should be, for whoever asks this broker about itself."""
        found = self.door.look()
        return [
            f"{name}: {trouble}" for name, trouble in found.items() if trouble is not None and name != "loop"
        ]

    # -- the checks ----------------------------------------------------------------------------------------------

    def _disk(self) -> str | None:
        broker = self.broker
        if broker is None:
            return None
        if broker.flusher.failure is not None:
            return f"the log directory failed: {broker.flusher.failure}"
        return broker.replicas.room.refusal if broker.replicas.room.is_low else None

    def _log(self) -> str | None:
        return None if self.broker is None else self.broker.flusher.trouble()

    def _vital_tasks(self) -> str | None:
        return "; ".join(self._runtime.supervisor.troubles(vital=True)) or None

    def _other_tasks(self) -> str | None:
        return Degraded.of("; ".join(self._runtime.supervisor.troubles(vital=False)))

    def _coordinator(self) -> str | None:
        membership = self.membership
        if membership is None or membership.term is None or self.phase is not None:
            return None
        silence = membership.silence_ms()
        if not membership.lease_held():
            return f"no answer for {silence // 1000} s, and the lease has run out"
        if silence:
            return Degraded(f"no answer for {silence // 1000} s")
        restored = None if self.broker is None else self.broker.metadata.restored
        if restored is None:
            return None
        return Degraded(
            f"it was restored from a backup (from revision {restored.from_revision} to {restored.to_revision}): compare topics "
            "and configs with what you expect, look into the quarantine directories, then restart this broker"
        )

    def _replication(self) -> str | None:
        broker = self.broker
        if broker is None:
            return None
        found = [f"{tp} is offline: {why}" for tp, why in broker.replicas.offline.items()]
        found += [
            f"{partition.tp} falls behind: {trouble}"
            for partition in broker.replicas.replicator.followed()
            if (trouble := partition.following.trouble()) is not None
        ]
        more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
        return Degraded.of("; ".join(found[:NAMED]) + more)

    def _security(self) -> str | None:
        image = self.security
        if image is None:
            return None
        if image.unreadable:
            return Degraded(
                f"{len(image.unreadable)} of its keys can't be read, and take rights away until they are mended"
            )
        silence_ms = 0 if self.membership is None else self.membership.silence_ms()
        if image.guards and silence_ms >= OLD_RIGHTS_MS:
            return Degraded(
                f"users and rights are as they were {silence_ms // 1000} s ago, and can't be changed"
            )
        return None

    def _loop(self) -> str | None:
        lag_ms = 0 if self.housekeeping is None else self.housekeeping.worst_lag_ms
        return Degraded(f"it stood still for {lag_ms} ms") if lag_ms >= SLOW_LOOP_MS else None

    # -- metrics -------------------------------------------------------------------------------------------------

    def collect(self) -> Iterable[Family]:
        levels = {
            name: OK if trouble is None else IN_TROUBLE if isinstance(trouble, Degraded) else NOT_READY
            for name, trouble in self.door.look().items()
        }
        yield Family(
            "mq_health",
            "gauge",
            "Each check of /readyz: 0 well, 1 in trouble but serving, 2 not ready.",
            [Sample((("check", name),), level) for name, level in levels.items()],
        )
        up = levels["coordinator"] == OK and self.membership is not None
        yield gauge("mq_coordinator_up", "1 while the coordinator answers.", int(up))
        if self.broker is not None:
            text = "How long each round of fdatasync took."
            yield Family(
                "mq_fsync_duration_seconds", "histogram", text, self.broker.flusher.seconds.samples()
            )
        supervisor = self._runtime.supervisor
        running: dict[str, int] = {}
        for task in supervisor.tasks:
            running[task.name] = running.get(task.name, 0) + task.is_running
        yield Family(
            "mq_task_running",
            "gauge",
            "Supervised tasks: 1 while it runs, 0 while it waits to be started again or was given up.",
            [Sample((("task", name),), count) for name, count in running.items()],
        )
        yield Family(
            "mq_task_failures_total",
            "counter",
            "How often a supervised task failed.",
            [Sample((("task", name),), count) for name, count in supervisor.failures.items()],
        )
        yield Family(
            "mq_unexpected_errors_total",
            "counter",
            "Exceptions that nobody foresaw, by where they were caught.",
            [Sample((("where", where),), tally.count) for where, tally in supervisor.surprises.items()],
        )
        lag_ms = 0 if self.housekeeping is None else self.housekeeping.worst_lag_ms
        yield Family(
            "mq_eventloop_lag_seconds",
            "gauge",
            "The longest that the event loop was late in the last ten seconds.",
            [Sample((), lag_ms / 1000)],
        )
        silence_ms = 0 if self.membership is None else self.membership.silence_ms()
        yield Family(
            "mq_coordinator_silence_seconds",
            "gauge",
            "How long the coordinator has not answered when it was asked; 0 while it answers.",
            [Sample((), silence_ms / 1000)],
        )
        room = None if self.broker is None else self.broker.replicas.room
        if room is not None and room.free_bytes >= 0:
            yield Family(
                "mq_disk_free_bytes",
                "gauge",
                "What is left on the disk of the logs.",
                [Sample((), room.free_bytes)],
            )
