"""The same round trip with each client, as a user (P2): records there and back, and what each makes of a wrong password."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

COUNT = 500


class Login(NamedTuple):
    bootstrap: str
    mechanism: str
    user: str
    password: str
    ca: str = ""
    """The certificate to trust; empty: without TLS."""

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.ca else "SASL_PLAINTEXT"


class WrongPassword(Exception):
    """The client's own authentication error."""


def librdkafka(login: Login) -> dict[str, object]:
    given: dict[str, object] = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "sasl.mechanism": login.mechanism,
        "sasl.username": login.user,
        "sasl.password": login.password,
    }
    return {**given, "ssl.ca.location": login.ca} if login.ca else given


def with_confluent(login: Login, topic: str, scratch: Path) -> None:
    refused: list[confluent_kafka.KafkaError] = []

    def error(problem: confluent_kafka.KafkaError) -> None:
        if problem.code() == confluent_kafka.KafkaError._AUTHENTICATION:
            refused.append(problem)

    producer = confluent_kafka.Producer({**librdkafka(login), "error_cb": error, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number)
    while len(producer) and not refused:
        producer.poll(0.2)
    if refused:
        producer.purge()
        raise WrongPassword(str(refused[0]))
    config = {**librdkafka(login), "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe([topic])
    got: list[int] = []
    while len(got) < COUNT:
        for message in consumer.consume(COUNT, 1.0):
            assert message.error() is None, message.error()
            got.append(int(message.value() or b""))
    consumer.close()
    assert got == list(range(COUNT))


def with_aiokafka(login: Login, topic: str, scratch: Path) -> None:
    from aiokafka.helpers import create_ssl_context

    options = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.protocol,
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
        "ssl_context": create_ssl_context(cafile=login.ca) if login.ca else None,
    }

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(**options, enable_idempotence=True)
        try:
            await producer.start()
        except aiokafka.errors.KafkaError as problem:
            await producer.stop()
            if isinstance(problem, aiokafka.errors.KafkaConnectionError) and login.password == "wrong":
                # It tries every address and then says that none is left; its log has the reason.
                raise WrongPassword from problem
            raise
        for number in range(COUNT):
            await producer.send(topic, b"%d" % number)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, **options, group_id=f"g-{topic}", auto_offset_reset="earliest"
        )
        await consumer.start()
        got: list[int] = []
        while len(got) < COUNT:
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                got += [int(message.value) for message in messages]
        await consumer.stop()
        assert got == list(range(COUNT))

    asyncio.run(run())


def with_kafka_python(login: Login, topic: str, scratch: Path) -> None:
    options = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.protocol,
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
        "ssl_cafile": login.ca or None,
        "bootstrap_timeout_ms": 3_000 if login.password == "wrong" else 60_000,
    }
    try:
        producer = kafka.KafkaProducer(**options)
        futures = [producer.send(topic, b"%d" % number) for number in range(COUNT)]
    except kafka.errors.KafkaError as problem:
        if login.password == "wrong":
            raise WrongPassword from problem
        raise
    producer.flush(60)
    assert all(future.succeeded() for future in futures)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **options, group_id=f"g-{topic}", auto_offset_reset="earliest")
    got: list[int] = []
    while len(got) < COUNT:
        for messages in consumer.poll(1000).values():
            got += [int(message.value) for message in messages]
    consumer.close()
    assert got == list(range(COUNT))


def with_kcat(login: Login, topic: str, scratch: Path) -> None:
    options = [
        f"-X{name}={value}" for name, value in librdkafka(login).items() if name != "bootstrap.servers"
    ]
    sent = scratch / "sent"
    sent.write_text("".join(f"{number}\n" for number in range(COUNT)))
    base = ["kcat", "-b", login.bootstrap, *options]
    made = subprocess.run(
        [*base, "-P", "-t", topic, "-l", str(sent)], capture_output=True, text=True, timeout=120
    )
    if made.returncode != 0 and "uthentication" in made.stderr:
        raise WrongPassword(made.stderr)
    assert made.returncode == 0, made.stderr
    read = [*base, "-C", "-t", topic, "-o", "beginning", "-c", str(COUNT), "-q"]
    got = subprocess.run(read, capture_output=True, text=True, timeout=120, check=True)
    assert got.stdout.split() == [str(number) for number in range(COUNT)]


def with_kafkajs(installed: Path) -> Callable[[Login, str, Path], None]:
    def run(login: Login, topic: str, scratch: Path) -> None:
        asked = {
            **login._asdict(),
            "mechanism": login.mechanism.removeprefix("SCRAM-SHA-").lower(),
            "topic": topic,
        }
        if login.mechanism != "PLAIN":
            asked["mechanism"] = f"scram-sha-{asked['mechanism']}"
        ended = subprocess.run(
            ["node", "login.js", json.dumps({**asked, "count": COUNT})],
            cwd=installed, capture_output=True, text=True, timeout=180,
        )  # fmt: skip
        if ended.returncode == 3:
            raise WrongPassword(ended.stderr)
        assert ended.returncode == 0, ended.stderr
        assert sorted(json.loads(ended.stdout)) == list(range(COUNT))

    return run
