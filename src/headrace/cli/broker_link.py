"""Command: the way to a broker: the Kafka admin client with our words for its errors.

Whether anybody listens is tried with a plain connection first: a refused connection is told at once, where librdkafka
would go on trying until the timeout.
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from headrace.cli.addresses import split_address
from headrace.cli.failure import Exit, Failure, did_you_mean, exit_of, failure_of
from headrace.cli.profile import LOG_IN, Profile
from headrace.client.errors import headrace_error
from headrace.core.errors import ErrorKind
from headrace.core.ids import is_internal
from headrace.wire.api import ApiKey

T = TypeVar("T")

log = logging.getLogger("librdkafka")

LOOK_SECONDS = 0.5
PATIENCE_S = 1.0
_QUESTION = struct.pack(">ihhih12si", 26, ApiKey.METADATA, 1, 1, 12, b"headrace-cli", 0)
"""Metadata of no topic."""

EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Span(NamedTuple):
    """What a partition holds: from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def messages(self) -> int:
        return self.end - self.start


class BrokerLink:
    def __init__(self, profile: Profile, *, verbose: bool = False) -> None:
        self.profile = profile
        self.timeout_s = profile.timeout_ms / 1000
        self._verbose = verbose
        self._family = "any"

    # -- connecting --------------------------------------------------------------------------------------------

    def reach(self) -> None:
        """Fails at once when nobody listens at any of the bootstrap addresses."""
        reasons = []
        for address in self.profile.bootstrap.split(","):
            host, port = split_address(address.strip())
            try:
                with socket.create_connection((host, port), timeout=min(self.timeout_s, 5)) as probe:
                    self._family = _family(host, port, probe.family)
                    if not self._proves_itself and _is_shown_out(probe):
                        raise Failure(
                            Exit.DENIED,
                            f"{address.strip()} lets in only who logs in",
                            LOG_IN,
                            code="SASL_AUTHENTICATION_FAILED",
                        )
                    return
            except OSError as problem:
                reasons.append(f"{address}: {(problem.strerror or str(problem)).lower()}")
        raise Failure(
            Exit.UNREACHABLE,
            f"cannot reach a broker at {'; '.join(reasons)}",
            "start one with:  headrace serve\nor another: --bootstrap HOST:PORT, HEADRACE_BOOTSTRAP or --context NAME",
        )

    @property
    def _proves_itself(self) -> bool:
        return bool(self.profile.user or self.profile.token_file or self.profile.tls_ca)

    def client_config(self, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        if not log.handlers:
            log.addHandler(logging.StreamHandler() if self._verbose else logging.NullHandler())
            log.propagate = False
        return {
            "bootstrap.servers": self.profile.bootstrap,
            "client.id": "headrace-cli",
            "broker.address.family": self._family,
            "logger": log,
            **self._login(),
            **(extra or {}),
        }

    def _login(self) -> dict[str, Any]:
        profile = self.profile
        trust = {"ssl.ca.location": profile.tls_ca} if profile.tls_ca else {}
        if profile.token_file:
            # It is asked for again when its hour is over; the file may hold another by then.
            return {
                **trust,
                "security.protocol": "SASL_SSL" if trust else "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (profile.token, time.time() + 3_600),
            }
        if not profile.user:
            return {"security.protocol": "SSL", **trust} if trust else {}
        return {
            **trust,
            "security.protocol": "SASL_SSL" if trust else "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": profile.user,
            "sasl.password": profile.password,
        }

    @cached_property
    def admin(self) -> AdminClient:
        self.reach()
        return AdminClient(self.client_config())

    def producer(self, extra: Mapping[str, Any]) -> Producer:
        self.reach()
        return Producer(self.client_config(extra))

    def consumer(self, extra: Mapping[str, Any]) -> Consumer:
        self.reach()
        return Consumer(
            self.client_config({"group.id": "headrace-cli", "enable.auto.commit": False, **extra})
        )

    # -- asking ------------------------------------------------------------------------------------------------

    def answer(self, future: Future[T], subject: str = "") -> T:
        """The result of an admin call; its error as a Failure."""
        try:
            return future.result(timeout=self.timeout_s + 1)
        except KafkaException as problem:
            raise failure_of(headrace_error(problem.args[0]), subject) from None
        except TimeoutError:
            raise Failure(
                Exit.TIMEOUT, f"{subject or 'the broker'}: no answer in time", "--timeout 30s"
            ) from None

    def outcome(self, future: Future[Any], subject: str = "") -> Failure | None:
        """None when it worked: for commands over several things."""
        try:
            self.answer(future, subject)
        except Failure as failure:
            return failure
        return None

    def topics(self, *, internal: bool = True) -> dict[str, Any]:
        """Name -> metadata of every topic."""
        found = self._metadata().topics
        return {name: found[name] for name in sorted(found) if internal or not is_internal(name)}

    def _metadata(self) -> Any:
        """In short looks: Ctrl+C is not heard while librdkafka waits."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                return self.admin.list_topics(timeout=max(0.01, min(LOOK_SECONDS, left)))
            except KafkaException as problem:
                error = headrace_error(problem.args[0])
                passing = error.kind in (ErrorKind.BROKER_NOT_AVAILABLE, ErrorKind.REQUEST_TIMED_OUT)
                if left > LOOK_SECONDS and passing:
                    continue
                raise Failure(
                    exit_of(error.kind),
                    f"no answer from {self.profile.bootstrap}: {error.detail}",
                    "headrace doctor looks for the reason; --timeout 30s waits longer",
                ) from None

    def need_topics(self, names: Iterable[str]) -> dict[str, Any]:
        """The metadata of these topics; not-found with the nearest name otherwise."""
        known = self.topics()
        for name in names:
            if name not in known:
                raise self.no_such_topic(name, known)
        return {name: known[name] for name in names}

    def no_such_topic(self, name: str, known: Iterable[str], *, may_create: bool = True) -> Failure:
        meant = did_you_mean(name, (other for other in known if not is_internal(other)))
        create = f"create it with:  headrace topic create {name}" if may_create else "headrace topic list"
        return Failure(
            Exit.NOT_FOUND,
            f'topic "{name}" does not exist on {self.profile.bootstrap}',
            f"{meant}  {create}" if meant else create,
            code="UNKNOWN_TOPIC_OR_PARTITION",
        )

    def offsets(self, partitions: Iterable[tuple[str, int]], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        wanted = {TopicPartition(topic, number): spec for topic, number in partitions}
        if not wanted:
            return {}
        futures = self.admin.list_offsets(wanted, request_timeout=self.timeout_s)
        return {(tp.topic, tp.partition): self.answer(future).offset for tp, future in futures.items()}

    def spans(self, topics: Mapping[str, Any]) -> dict[tuple[str, int], Span]:
        """First and next offset of every partition of these topics."""
        partitions = [(name, number) for name, topic in topics.items() for number in topic.partitions]
        starts = self.offsets(partitions, EARLIEST)
        ends = self.offsets(partitions, LATEST)
        return {key: Span(starts[key], ends[key]) for key in starts}


def _is_shown_out(probe: socket.socket) -> bool:
    """Whether the broker hangs up on who asks before a login, as Kafka's do: librdkafka then tries on until the timeout, and says
    "transport failure" or "timed out". Nobody waits long here for one that says nothing."""
    probe.settimeout(PATIENCE_S)
    try:
        probe.sendall(_QUESTION)
        return not probe.recv(1)
    except ConnectionError:
        return True
    except OSError:
        return False


def _family(host: str, port: int, used: int) -> str:
    """localhost is two addresses, and trying the one that nobody listens on costs a second: so the family that worked,
    unless the resolver (asked as librdkafka asks it) then finds nothing, as on a machine with loopback alone (F45)."""
    try:
        socket.getaddrinfo(host, port, used, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    except OSError:
        return "any"
    return "v6" if used == socket.AF_INET6 else "v4"
