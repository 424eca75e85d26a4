"""A consume-transform-produce loop as a process, one per client library, made to be killed at any moment.

python worker.py confluent|aiokafka|kafka-python BOOTSTRAP SOURCE SINK NAME SEED

Each round copies what it read to the sink, into the same partition, and commits output and offsets as one transaction.
Now and then it writes nonsense and aborts instead. It handles no error: whatever goes wrong ends the process, as a
crash would, and the next one goes on where the last commit left off.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import signal
import sys
import traceback
from typing import Any, NamedTuple

NONSENSE = b"aborted:"
SESSION_MS = 2_000
TRANSACTION_MS = 20_000
ROUND = 40
ABORT_ONE_IN = 6


class Job(NamedTuple):
    bootstrap: str
    source: str
    sink: str
    name: str
    """Group and transactional id."""
    dice: random.Random

    def aborts(self) -> bool:
        return self.dice.randrange(ABORT_ONE_IN) == 0


def confluent(job: Job) -> None:
    import confluent_kafka as ck

    # Recovery "none": when every broker is down at once, librdkafka 2.16 forgets them all and begins anew (KIP-899), but its
    # cache of coordinators keeps the forgotten one, and the next send_offsets_to_transaction waits for it until it times out.
    producer = ck.Producer(
        {"bootstrap.servers": job.bootstrap, "transactional.id": job.name, "linger.ms": 1, "log_level": 0,
         "metadata.recovery.strategy": "none", "transaction.timeout.ms": TRANSACTION_MS, "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
    )  # fmt: skip
    producer.init_transactions(30)
    consumer = ck.Consumer(
        {"bootstrap.servers": job.bootstrap, "group.id": job.name, "auto.offset.reset": "earliest", "log_level": 0,
         "enable.auto.commit": False, "isolation.level": "read_committed", "session.timeout.ms": SESSION_MS,
         "heartbeat.interval.ms": 300, "reconnect.backoff.max.ms": 200, "fetch.wait.max.ms": 50}
    )  # fmt: skip
    consumer.subscribe([job.source])
    while True:
        messages = [message for message in consumer.consume(ROUND, 0.1) if message.error() is None]
        if not messages:
            continue
        aborts = job.aborts()
        producer.begin_transaction()
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for message in messages:
            first.setdefault(message.partition(), message.offset())
            last[message.partition()] = message.offset()
            value = NONSENSE + message.value() if aborts else message.value()
            producer.produce(job.sink, value, partition=message.partition())
        ends = [ck.TopicPartition(job.source, number, offset + 1) for number, offset in last.items()]
        producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), 30)
        if aborts:
            producer.abort_transaction(30)
            for number, offset in first.items():
                consumer.seek(ck.TopicPartition(job.source, number, offset))
        else:
            producer.commit_transaction(30)


def kafka_python(job: Job) -> None:
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata

    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap, transactional_id=job.name, transaction_timeout_ms=TRANSACTION_MS,
        retry_backoff_ms=20, reconnect_backoff_max_ms=200, max_block_ms=30_000,
    )  # fmt: skip
    producer.init_transactions()
    consumer = KafkaConsumer(
        job.source, bootstrap_servers=job.bootstrap, group_id=job.name, auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed", session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300, reconnect_backoff_max_ms=200, fetch_max_wait_ms=50,
    )  # fmt: skip
    while True:
        found = consumer.poll(timeout_ms=1_000, max_records=ROUND)
        if not found:
            continue
        aborts = job.aborts()
        producer.begin_transaction()
        futures = [
            producer.send(
                job.sink, NONSENSE + record.value if aborts else record.value, partition=partition.partition
            )
            for partition, records in found.items()
            for record in records
        ]
        ends = {
            partition: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for partition, records in found.items()
        }
        producer.send_offsets_to_transaction(ends, consumer.group_metadata())
        for future in futures:
            future.get(30)
        if aborts:
            producer.abort_transaction()
            for partition, records in found.items():
                consumer.seek(partition, records[0].offset)
        else:
            producer.commit_transaction()


async def aiokafka(job: Job) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import ConsumerRebalanceListener

    # aiokafka rebalances in the background, at any moment, and then goes back to what it finds committed: to the beginning of a
    # transaction that is under way, if nobody holds it up. (Under load a session of 2 s ends now and then.)
    one_round = asyncio.Lock()

    class AfterTheRound(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: object) -> None:
            async with one_round:
                pass

        async def on_partitions_assigned(self, assigned: object) -> None:
            pass

    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap, transactional_id=job.name, transaction_timeout_ms=TRANSACTION_MS,
        retry_backoff_ms=50,
    )  # fmt: skip
    await producer.start()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap, group_id=job.name, auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed", session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300, retry_backoff_ms=50, fetch_max_wait_ms=50,
    )  # fmt: skip
    consumer.subscribe([job.source], listener=AfterTheRound())
    await consumer.start()
    while True:
        async with one_round:
            await aiokafka_round(job, consumer, producer)


async def aiokafka_round(job: Job, consumer: Any, producer: Any) -> None:
    found = await consumer.getmany(timeout_ms=100, max_records=ROUND)
    if not found:
        return
    aborts = job.aborts()
    await producer.begin_transaction()
    futures = [
        await producer.send(
            job.sink, NONSENSE + record.value if aborts else record.value, partition=partition.partition
        )
        for partition, records in found.items()
        for record in records
    ]
    ends = {partition: records[-1].offset + 1 for partition, records in found.items()}
    await producer.send_offsets_to_transaction(ends, job.name)
    await asyncio.gather(*futures)
    if aborts:
        await producer.abort_transaction()
        for partition, records in found.items():
            consumer.seek(partition, records[0].offset)
    else:
        await producer.commit_transaction()


def main() -> None:
    client, bootstrap, source, sink, name, seed = sys.argv[1:]
    faulthandler.register(signal.SIGUSR1)
    job = Job(bootstrap, source, sink, name, random.Random(int(seed)))
    try:
        if client == "confluent":
            confluent(job)
        elif client == "kafka-python":
            kafka_python(job)
        else:
            asyncio.run(aiokafka(job))
    except BaseException:
        # A crash says no goodbye; librdkafka would wait for its coordinator here.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
