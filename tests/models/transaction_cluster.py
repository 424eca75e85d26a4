"""A cluster small enough to break on purpose: one coordinator shard, a few partitions, producers, a hostile network.

What KAFKA-17754 is about: a request that its client has given up may arrive much later, over a connection that the client
has left, when the same producer is in its next transaction. Connections are queues that keep their order but not their
time; a client that times out opens a new one and says the same thing again. Every choice comes from one seed.

The real parts are the coordinator shard, the verification tickets and the connection table; the partition is a model of
kafka.md 5.3. Each rule can be switched off, to see that the checker notices.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from transaction_world import World

from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.core.plan import Plan
from headrace.transactions.commands import (
    AddPartitions,
    CloseConnection,
    EndTxn,
    InitProducerId,
    SendMarkers,
    VerifyPartitions,
)
from headrace.transactions.connections import NewestConnections
from headrace.transactions.verification import Verifications

TIMED_OUT = object()
TIMEOUT_MS = 60_000
RETRY = (ErrorKind.CONCURRENT_TRANSACTIONS, ErrorKind.NOT_ENOUGH_REPLICAS)


@dataclass(frozen=True)
class Rules:
    """Which defences are up."""

    version_2: bool = False
    """The clients speak transaction version 2."""
    epoch_bump: bool = True
    """R46."""
    newest_connection: bool = True
    """R47, at the coordinator and on the produce path."""
    verification: bool = True
    """R45: ask the coordinator before a transaction is opened on a partition."""
    tickets: bool = True
    """R45: a marker that arrives meanwhile invalidates the answer."""
    connection_floor: bool = True
    """R47: after a failover nobody is heard over a connection from before it."""
    second_hearing: bool = True
    """R47: the first words after an abort count once they are repeated, or over a newer connection."""
    coordinator_epochs: bool = True
    """R43: a partition takes no marker of a coordinator that was replaced."""
    marker_rounds: bool = True
    """Late answers to the markers of an earlier transaction count for nothing."""
    open_by_epoch: bool = True
    """An open transaction of an older epoch is not taken for this epoch's."""


class Value(NamedTuple):
    client: int
    transaction: int
    number: int


class Produce(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int
    value: Value


@dataclass
class Attempt:
    """What a client tried as one transaction, and what it was told."""

    values: list[Value] = field(default_factory=list)
    asked: bool | None = None
    confirmed: bool = False


class Torn(AssertionError):
    """A transaction that is not one."""


class PartitionModel:
    """The leader of one partition: kafka.md 5.3 as far as transactions need it."""

    def __init__(self, cluster: Cluster, tp: TopicPartition) -> None:
        self.cluster = cluster
        self.tp = tp
        self.log: list[tuple[str, int, Any]] = []
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.coordinator_epochs: dict[int, int] = {}
        self.open: set[int] = set()
        self.verifications = Verifications()
        self.connections = NewestConnections()

    def produce(self, request: Produce, connection: int, reply: Callable[[ErrorKind], None]) -> None:
        rules, pid, epoch = self.cluster.rules, request.producer_id, request.epoch
        if (
            not rules.version_2
            and rules.newest_connection
            and not self.connections.admit(pid, epoch, connection)
        ):
            return  # the connection is closed
        refused = self._check(request)
        if refused is not None:
            reply(refused)
        elif self._is_open(request) or (not rules.version_2 and not rules.verification):
            self._append(request, reply)
        elif (
            not rules.version_2
            and rules.second_hearing
            and not self.verifications.hearings.admits(pid, epoch, connection, request.sequence)
        ):
            reply(ErrorKind.NOT_ENOUGH_REPLICAS)
        else:
            ticket = self.verifications.begin(pid, epoch)
            self.cluster.ask_coordinator(
                request, self.tp, lambda error: self._verified(request, ticket, error, reply)
            )

    def _verified(
        self, request: Produce, ticket: int, error: ErrorKind, reply: Callable[[ErrorKind], None]
    ) -> None:
        if error is not ErrorKind.NONE:
            reply(error)
            return
        refused = self._check(request)
        if refused is not None:
            reply(refused)
        elif (
            self.cluster.rules.tickets
            and not self._is_open(request)
            and not self.verifications.holds(request.producer_id, request.epoch, ticket)
        ):
            reply(ErrorKind.CONCURRENT_TRANSACTIONS)
        else:
            self._append(request, reply)

    def _is_open(self, request: Produce) -> bool:
        """An open transaction of an older epoch is not this one's: its marker is still on the way (KIP-890)."""
        if not self.cluster.rules.open_by_epoch:
            return request.producer_id in self.open
        return request.producer_id in self.open and self.epochs[request.producer_id] == request.epoch

    def _check(self, request: Produce) -> ErrorKind | None:
        stored = self.epochs.get(request.producer_id)
        if stored is None:
            return None
        if request.epoch < stored:
            return ErrorKind.INVALID_PRODUCER_EPOCH
        last = self.sequences[request.producer_id] if request.epoch == stored else -1
        if request.sequence <= last:
            return ErrorKind.NONE  # a duplicate
        return None if request.sequence == last + 1 else ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _append(self, request: Produce, reply: Callable[[ErrorKind], None]) -> None:
        self.epochs[request.producer_id] = request.epoch
        self.sequences[request.producer_id] = request.sequence
        self.open.add(request.producer_id)
        self.verifications.appended(request.producer_id)
        self.log.append(("data", request.producer_id, request.value))
        reply(ErrorKind.NONE)

    def marker(self, sent: SendMarkers, decision: int) -> None:
        pid = sent.producer_id
        if self.cluster.rules.coordinator_epochs and sent.coordinator_epoch < self.coordinator_epochs.get(
            pid, -1
        ):
            return
        self.coordinator_epochs[pid] = sent.coordinator_epoch
        if sent.producer_epoch > self.epochs.get(pid, -1):
            self.epochs[pid] = sent.producer_epoch
            self.sequences[pid] = -1
        self.open.discard(pid)
        self.verifications.marker_written(
            pid,
            sent.producer_epoch,
            commit=sent.commit,
            newest_connection_id=self.cluster.next_connection - 1,
        )
        self.log.append(("marker", pid, (decision, sent.commit)))


class Cluster:
    def __init__(self, seed: int, rules: Rules, clients: int = 1) -> None:
        self.rules = rules
        self.random = random.Random(seed)
        self.world = World(connection_fencing=rules.newest_connection)
        self.partitions = {tp: PartitionModel(self, tp) for tp in (TopicPartition("t", i) for i in range(3))}
        self.connections: dict[int, deque[Callable[[], None]]] = {}
        """Client connections: what was sent first arrives first, or not before everything else."""
        self.inside: list[Callable[[], None]] = []
        """Between brokers: reliable, in any order."""
        self.slow: list[Callable[[], None]] = []
        """The same, but it takes its time."""
        self.next_connection = 1
        self.decision = 0
        self.clients = [Client(self, index) for index in range(clients)]

    # --- the coordinator -------------------------------------------------------------------------------------

    def ask(self, make: Callable[[int], Any]) -> Any:
        answer = self.world.ask(make)
        self._carry_out(self.world.last, new=True)
        return answer

    def _carry_out(self, plan: Plan, *, new: bool) -> None:
        for sent in plan.effects:
            if isinstance(sent, CloseConnection):
                self.connections.pop(sent.connection_id, None)
                for client in self.clients:
                    client.disconnected(sent.connection_id)
            else:
                self.decision += new
                for tp in sent.partitions:
                    self.inside.append(partial(self._mark, sent, tp, self.decision))

    def _mark(self, sent: SendMarkers, tp: TopicPartition, decision: int) -> None:
        self.partitions[tp].marker(sent, decision)
        self.inside.append(lambda: self._marked(sent, tp))
        if self.random.random() < 0.2:
            self.slow.append(lambda: self._marked(sent, tp))  # an answer twice, one of them late

    def _marked(self, sent: SendMarkers, tp: TopicPartition) -> None:
        if not self.rules.marker_rounds:
            sent = sent._replace(marker_round=self.world.shard.table.entries["x"].marker_round)
        if sent.coordinator_epoch == self.world.coordinator_epoch:  # drivers die with their shard
            self.world.mark(tp, sent=sent)

    def ask_coordinator(
        self, request: Produce, tp: TopicPartition, then: Callable[[ErrorKind], None]
    ) -> None:
        """The leader of `tp` asks about a batch: verify for old clients, add for new ones."""

        def arrive() -> None:
            who = ("x", request.producer_id, request.epoch)
            if self.rules.version_2:
                error = self.ask(lambda w: AddPartitions(*who, frozenset({tp}), waiter=w))
            else:
                error = self.ask(lambda w: VerifyPartitions(*who, frozenset({tp}), waiter=w))[tp]
            self.inside.append(lambda: then(error))

        self.inside.append(arrive)

    def fail_over(self) -> None:
        self.world.restart(connection_floor=self.next_connection - 1 if self.rules.connection_floor else -1)
        self._carry_out(self.world.last, new=False)

    def pass_time(self, ms: int) -> None:
        end_ms = self.world.now_ms + ms
        while (at_ms := self.world.shard.next_deadline()) is not None and at_ms <= end_ms:
            self.world.now_ms = max(self.world.now_ms, at_ms)
            self.world.run(self.world.shard.expire(self.world.now_ms))
            self._carry_out(self.world.last, new=True)
        self.world.now_ms = end_ms

    # --- the schedule ----------------------------------------------------------------------------------------

    def run(self, steps: int = 400) -> None:
        for _ in range(steps):
            self._step()
        for client in self.clients:
            client.stop()
        for _ in range(3):
            while self._deliver():
                pass
            self.pass_time(2 * TIMEOUT_MS)
        self.check()

    def _step(self) -> None:
        dice = self.random.random()
        if dice < 0.70:
            self._deliver()
        elif dice < 0.85:
            self.random.choice(self.clients).time_out()
        elif dice < 0.86:
            self.fail_over()
        elif dice < 0.87:
            self.pass_time(self.random.choice((1_000, TIMEOUT_MS)))
        for client in self.clients:
            client.advance()

    def _deliver(self) -> bool:
        waiting = [connection for connection, queue in self.connections.items() if queue]
        # A connection that was left is slow: that is the point.
        choices: list[tuple[float, Callable[[], Callable[[], None]]]] = [
            (1.0 if self._is_current(connection) else 0.15, self.connections[connection].popleft)
            for connection in waiting
        ]
        choices += ((1.0, partial(self.inside.pop, i)) for i in range(len(self.inside)))
        choices += ((0.05, partial(self.slow.pop, i)) for i in range(len(self.slow)))
        if not choices:
            return False
        [(_, take)] = self.random.choices(choices, [weight for weight, _ in choices])
        take()()
        return True

    def _is_current(self, connection: int) -> bool:
        return any(connection in client.targets.values() for client in self.clients)

    # --- what must hold --------------------------------------------------------------------------------------

    def check(self) -> None:
        resolved: dict[Value, tuple[int, bool]] = {}
        for partition in self.partitions.values():
            pending: dict[int, list[Value]] = {}
            for kind, pid, what in partition.log:
                if kind == "data":
                    pending.setdefault(pid, []).append(what)
                    continue
                for value in pending.pop(pid, ()):
                    if value in resolved:
                        raise Torn(f"{value} is in the log twice")
                    resolved[value] = what
            if any(pending.values()) or partition.open:
                raise Torn(f"a transaction hangs on {partition.tp}: {pending}")
        owners: dict[int, set[tuple[int, int]]] = {}
        for value, (decision, _) in resolved.items():
            owners.setdefault(decision, set()).add(value[:2])
        for decision, transactions in owners.items():
            if len(transactions) > 1:
                raise Torn(f"decision {decision} was made for {sorted(transactions)} at once")
        for client in self.clients:
            for number, attempt in enumerate(client.attempts):
                self._check_attempt(f"client {client.index} transaction {number}", attempt, resolved)

    def _check_attempt(self, name: str, attempt: Attempt, resolved: dict[Value, tuple[int, bool]]) -> None:
        outcomes = {resolved[value] for value in attempt.values if value in resolved}
        if len(outcomes) > 1:
            raise Torn(f"{name} was decided more than once: {outcomes}")
        committed = any(commit for _, commit in outcomes)
        missing = [value for value in attempt.values if value not in resolved]
        if committed and (attempt.asked is not True or missing):
            raise Torn(f"{name} was committed, but asked={attempt.asked} and missing {missing}")
        if attempt.confirmed and attempt.values and committed != attempt.asked:
            raise Torn(f"{name} was told {attempt.asked} and is {committed}")


Request = tuple[Any, Callable[[int, Callable[[Any], None]], None]]
"""Whom to ask, and what happens when it arrives there over a connection."""


class Client:
    """A producer: starts, then transactions one after another; repeats itself after a timeout; dies of other errors."""

    def __init__(self, cluster: Cluster, index: int) -> None:
        self.cluster = cluster
        self.index = index
        self.targets: dict[Any, int] = {}
        self.attempts: list[Attempt] = []
        self.dead = False
        self._request_id = 0
        self._answer: Any = None
        self._program = self._run()
        self._waiting = False

    # --- the wire --------------------------------------------------------------------------------------------

    def advance(self) -> None:
        while not self.dead and (not self._waiting or self._answer is not None):
            answer, self._answer = self._answer, None
            try:
                target, deliver = self._program.send(answer)
            except StopIteration:
                self.dead = True
                return
            self._waiting = True
            self._send(target, deliver)

    def _send(self, target: Any, deliver: Callable[[int, Callable[[Any], None]], None]) -> None:
        cluster = self.cluster
        if target not in self.targets:
            self.targets[target] = cluster.next_connection
            cluster.next_connection += 1
        connection = self.targets[target]
        self._request_id += 1
        request_id = self._request_id

        def reply(answer: Any) -> None:
            if request_id == self._request_id and not self.dead:
                self._answer = answer

        cluster.connections.setdefault(connection, deque()).append(lambda: deliver(connection, reply))

    def time_out(self) -> None:
        """Give up waiting: the connection is left to itself, and the next request goes over a new one."""
        if self._waiting and self._answer is None and not self.dead:
            self._request_id += 1
            self.targets.clear()
            self._answer = TIMED_OUT

    def disconnected(self, connection: int) -> None:
        self.targets = {target: known for target, known in self.targets.items() if known != connection}

    def stop(self) -> None:
        self.dead = True

    # --- the program -----------------------------------------------------------------------------------------

    def _call(self, target: Any, deliver: Any) -> Generator[Request, Any, Any]:
        """Ask until there is an answer that is not `later`."""
        while True:
            answer = yield target, deliver
            error = answer if isinstance(answer, ErrorKind) else getattr(answer, "error", None)
            if answer is not TIMED_OUT and error not in RETRY:
                return answer

    def _ask(self, make: Callable[[int, int], Any]) -> Generator[Request, Any, Any]:
        cluster = self.cluster
        return self._call("coordinator", lambda c, reply: reply(cluster.ask(lambda w: make(w, c))))

    def _run(self) -> Generator[Request, Any, None]:
        cluster, rules = self.cluster, self.cluster.rules
        who = yield from self._ask(
            lambda w, c: InitProducerId("x", TIMEOUT_MS, cluster.world.draw(), -1, -1, c, waiter=w)
        )
        if who.error is not ErrorKind.NONE:
            return
        sequences: dict[TopicPartition, int] = {}
        for number in range(6):
            attempt = Attempt()
            self.attempts.append(attempt)
            if not (yield from self._write(who, number, attempt, sequences)):
                return
            if not attempt.values or attempt.asked is not None:
                continue
            attempt.asked = cluster.random.random() < 0.7
            answer = yield from self._end(who, attempt.asked)
            if answer.error is not ErrorKind.NONE:
                return
            attempt.confirmed = True
            if rules.version_2 and rules.epoch_bump:
                who, sequences = answer, {}

    def _write(
        self, who: Any, number: int, attempt: Attempt, sequences: dict[TopicPartition, int]
    ) -> Generator[Request, Any, bool]:
        cluster = self.cluster
        chosen = cluster.random.sample(sorted(cluster.partitions), cluster.random.randint(1, 3))
        for tp in chosen:
            if not cluster.rules.version_2:
                places = frozenset({tp})
                added = yield from self._ask(
                    lambda w, c, places=places: AddPartitions(
                        "x", who.producer_id, who.producer_epoch, places, c, waiter=w
                    )  # type: ignore[misc]
                )
                if added is not ErrorKind.NONE:
                    return False
            for _ in range(cluster.random.randint(1, 2)):
                value = Value(self.index, number, len(attempt.values))
                attempt.values.append(value)
                request = Produce(who.producer_id, who.producer_epoch, sequences.get(tp, 0), value)
                if cluster.random.random() < 0.03 and not cluster.rules.version_2:
                    # Not every client waits for its batches before it aborts and goes on, or away. It does not use that
                    # sequence again: it can't know whether the batch was written.
                    sequences[tp] = sequences.get(tp, 0) + 1
                    yield from self._leave_behind(who, tp, request, attempt)
                    return attempt.confirmed and cluster.random.random() < 0.8
                answer = yield from self._call(
                    tp, lambda c, reply, r=request, tp=tp: cluster.partitions[tp].produce(r, c, reply)
                )
                if answer is not ErrorKind.NONE:
                    return False
                sequences[tp] = sequences.get(tp, 0) + 1
        return True

    def _leave_behind(
        self, who: Any, tp: TopicPartition, request: Produce, attempt: Attempt
    ) -> Generator[Request, Any, None]:
        cluster = self.cluster
        self._send(tp, lambda c, reply: cluster.partitions[tp].produce(request, c, lambda _: None))
        if cluster.random.random() < 0.5:
            self.targets.clear()
        elif cluster.random.random() < 0.8:
            del self.targets[tp]  # only the request that was given up costs its connection
        attempt.asked = False
        answer = yield from self._end(who, False)
        attempt.confirmed = answer.error is ErrorKind.NONE

    def _end(self, who: Any, commit: bool) -> Generator[Request, Any, Any]:
        rules = self.cluster.rules
        bump = rules.version_2 and rules.epoch_bump
        return self._ask(
            lambda w, c: EndTxn(
                "x",
                who.producer_id,
                who.producer_epoch,
                commit,
                bump,
                self.cluster.world.draw(),
                None if rules.version_2 else c,
                waiter=w,
            )
        )
