"""Pipeline: dead letters back to where they came from, mended on the way by SQL or Python if wanted.

A worker of the dead-letter queue: what it takes goes to the target in a transaction, and is acknowledged among the dead when
Spark's checkpoint has it. A crash in between does not send twice: the batch is replayed, its sink knows it, and a letter
that comes by again is known as done. To move letters unchanged, `headrace dlq redrive` needs no Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.queue_client import QueueClient
from headrace.core.errors import HeadraceError
from headrace.spark.dead_letters import with_reasons
from headrace.spark.options import source_options
from headrace.spark.pipelines.definition import DefinitionError, Redrive
from headrace.spark.pipelines.streams import mended

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MOVED = "transform(array('headrace-moved'), n -> struct(n as key, cast('1' as binary) as value))"
"""Its deduplication id was used up by its first life; the queue lets it pass for this header."""


def start_redrive(spark: SparkSession, definition: Redrive) -> StreamingQuery:
    options = _options(definition)
    reader = spark.readStream.format("headrace")
    for name, value in options.items():
        reader = reader.option(name, value)
    letters = with_reasons(reader.load()).selectExpr(
        "* except (headers, topic)",
        "filter(headers, h -> not startswith(h.key, 'headrace-dead-') and h.key != 'headrace-moved') as headers",
        f"{_target(definition, options)} as topic",
    )
    rows = mended(spark, letters, definition) if definition.sql or definition.python else letters
    wanted = [name for name in ("key", "value", "headers", "topic") if name in rows.columns]
    missing = {"value", "topic"} - set(wanted)
    if missing:
        raise DefinitionError(f"the result has no column {' and no '.join(sorted(missing))}")
    rows = rows.select(*wanted)
    if "headers" in wanted:
        rows = rows.selectExpr("* except (headers)", f"concat(headers, {_MOVED}) as headers")
    writer = (
        rows.writeStream.format("headrace")
        .options(**definition.options)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(Path(definition.state).resolve() / "checkpoint"))
        .queryName(definition.name)
    )
    if definition.rate:
        writer = writer.option("maxRecordsPerSecond", str(definition.rate))
    return writer.trigger(availableNow=True).start()


def _options(definition: Redrive) -> dict[str, str]:
    options = {
        **definition.options,
        "queue": definition.queue,
        "includeHeaders": "true",
        "keyFormat": "string",
        "valueFormat": "string",
        "visibility": definition.visibility,
        "maxMessagesPerTrigger": str(definition.max_messages_per_trigger),
    }
    if definition.url:
        options["url"] = definition.url
    if definition.filter:
        options["queueFilter"] = definition.filter
    return options


def _target(definition: Redrive, options: dict[str, str]) -> str:
    """SQL for the topic of each letter: the one named, or that of the queue it came from."""
    if definition.to:
        return "'" + definition.to.replace("'", "\\'") + "'"
    queue = source_options(options).queue
    assert queue is not None
    client = QueueClient(queue.url, queue.name, queue.token)
    try:
        known = {
            row["name"]: row["topics"][0] for row in client.queues() if definition.queue == row["dead_letter"]
        }
    except HeadraceError as problem:
        raise DefinitionError(f"{queue.url}: {problem.detail}") from None
    finally:
        client.close()
    if not known:
        raise DefinitionError(f'"{definition.queue}" is the dead-letter queue of no queue; say where with to')
    cases = " ".join(f"when source_queue = '{name}' then '{topic}'" for name, topic in sorted(known.items()))
    only = next(iter(known.values())) if len(known) == 1 else None
    # A letter that does not say where it came from was sent here by hand.
    return f"case {cases} " + (f"else '{only}' end" if only else "end")
