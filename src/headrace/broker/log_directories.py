"""Driver: where the logs of this broker lie: opens them, makes room for new ones, and carries away what is not ours any more.

S12: a directory that no topic claims is never deleted. It is moved aside and reported, because missing metadata is
no proof that the data is not wanted.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from headrace.broker.metadata import Metadata
from headrace.broker.runtime import Runtime
from headrace.cluster.configs import TopicConfig
from headrace.cluster.rows import Topic
from headrace.core.ports import FileSystem
from headrace.core.units import is_digits
from headrace.log.config import LogConfig
from headrace.log.memory_fs import MemoryFileSystem
from headrace.log.partition_log import PartitionLog
from headrace.log.results import LoadReport, LogCorrupt
from headrace.log.segment_cache import SegmentCache

log = logging.getLogger(__name__)

QUARANTINE = "quarantine"
DOOMED = ".deleted"


def log_config(config: TopicConfig) -> LogConfig:
    """The part of a topic's config that its logs go by."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        segment_jitter_ms=config.segment_jitter_ms,
        index_interval_bytes=config.index_interval_bytes,
        index_max_bytes=config.segment_index_bytes,
        delete=config.deletes_by_retention,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        timestamp_skew_ms=min(config.message_timestamp_after_max_ms, 2**53),
        file_delete_delay_ms=config.file_delete_delay_ms,
        compact=config.is_compacted,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
        delete_retention_ms=config.delete_retention_ms,
        log_append_time=config.is_log_append_time,
    )


def directory_name(topic: str, topic_id: bytes) -> str:
    """Readable for people, unique by the id: a topic created again under the same name gets its own (R34, X24)."""
    return f"{topic[:180]}@{topic_id.hex()}"


class LogPlace(NamedTuple):
    fs: FileSystem
    """The disk, or memory (storage=memory)."""
    directory: str


class LogDirectories:
    def __init__(
        self, runtime: Runtime, metadata: Metadata, log_dir: str, *, ephemeral: bool, repair: bool
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._image = metadata.image
        self._log_dir = log_dir
        self._quarantine = f"{log_dir.rpartition('/')[0]}/{QUARANTINE}"
        self._memory = MemoryFileSystem()
        self._caches: dict[int, SegmentCache] = {}
        """One for each file system, shared by its logs, so that open files stay bounded (S17)."""
        self._expected: dict[str, None] = {}
        """Directories of partitions that are about to be opened, some for the first time."""
        self._making = asyncio.Lock()
        self._ephemeral = ephemeral
        self._repair = repair

    def place(self, topic: Topic, number: int) -> LogPlace:
        fs = self._memory if self._ephemeral or topic.config.is_memory else self._runtime.fs
        return LogPlace(fs, f"{self._log_dir}/{directory_name(topic.name, topic.id)}/{number}")

    # -- opening -----------------------------------------------------------------------------------------------

    def expect(self, topic: Topic, number: int) -> None:
        """It will be opened soon, and may be new."""
        fs, directory = self.place(topic, number)
        if fs is not self._memory:
            self._expected[directory] = None

    async def _make_expected(self) -> None:
        """Whoever is first makes all of them, so that what they lie in is synced once and not once for each (F27)."""
        async with self._making:
            if self._expected:
                directories, self._expected = self._expected, {}
                await self._runtime.run_blocking(lambda: self._runtime.fs.make_dirs(*directories))

    def _forget(self, directory: str) -> None:
        """It is deleted, with all that is below it."""
        self._expected = {
            name: None
            for name in self._expected
            if name != directory and not name.startswith(f"{directory}/")
        }

    async def _open(self, topic: Topic, number: int) -> tuple[PartitionLog, LoadReport]:
        fs, directory = self.place(topic, number)
        if self._expected or self._making.locked():
            await self._make_expected()
        wall_ms = self._runtime.clock.wall_ms()
        cache = self._caches.setdefault(id(fs), SegmentCache(fs))

        def work() -> tuple[PartitionLog, LoadReport]:
            return PartitionLog.open(
                fs,
                directory,
                log_config(topic.config),
                topic_id=topic.id,
                wall_ms=wall_ms,
                cache=cache,
                repair=self._repair,
            )

        return await self._runtime.run_blocking(work)

    async def open_or_start_over(self, topic: Topic, number: int) -> tuple[PartitionLog, LoadReport]:
        """S3: a damaged replica that nobody counts on is put aside and fetched anew (F85). Its bytes are kept (S12).

        It can't be counted on meanwhile: who is in neither set gets into one only by fetching, and that needs the log. The
        image is no older than our registration, which took our earlier lives out of the ISR (R4).
        """
        try:
            return await self._open(topic, number)
        except LogCorrupt as problem:
            state = topic.partitions[number]
            if (
                state is None
                or self._image.broker_id in {*state.isr, *state.elr}
                or not state.isr + state.elr
            ):
                raise
            fs, directory = self.place(topic, number)
            aside = f"{directory_name(topic.name, topic.id)}-{number}-{self._runtime.clock.wall_ms()}"
            home = self._quarantine
            log.error(
                "%s-%d: %s; it is not in sync and others are: moved to %s/%s and fetched anew",
                topic.name, number, problem, home, aside,
            )  # fmt: skip
            await self._runtime.run_blocking(lambda: _put_aside(fs, directory, home, aside))
            return await self._open(topic, number)

    # -- carrying away -----------------------------------------------------------------------------------------

    async def clear_away(self, topic: Topic, number: int) -> None:
        """A replica that the metadata says is not ours."""
        fs, directory = self.place(topic, number)
        self._forget(directory)
        if fs.exists(directory):
            await self._clear_away(fs, directory, f"{directory_name(topic.name, topic.id)}-{number}")

    async def clear_away_topic(self, name: str, topic_id: bytes) -> None:
        directory = f"{self._log_dir}/{directory_name(name, topic_id)}"
        self._forget(directory)
        for fs in (self._memory, self._runtime.fs):
            if fs.exists(directory):
                await self._clear_away(fs, directory, directory_name(name, topic_id))

    async def _clear_away(self, fs: FileSystem, directory: str, name: str) -> None:
        """Data that the metadata says is not ours. A coordinator that was restored from a backup says so of everything that
        came later: then it is put aside (S12, F10)."""
        if self._metadata.restored is None or fs is self._memory:
            await self._runtime.run_blocking(lambda: _remove(fs, directory))
            return
        aside = f"{name}-{self._runtime.clock.wall_ms()}"
        log.error("a restored coordinator does not know %s: moved to %s/%s", name, self._quarantine, aside)
        await self._runtime.run_blocking(lambda: _put_aside(fs, directory, self._quarantine, aside))

    # -- start-up ----------------------------------------------------------------------------------------------

    def quarantine_unknown(self) -> list[str]:
        """Directories that belong to no topic we know, moved aside (S12). Deletions are finished: those that we began, and
        those of topics of which the metadata says in so many words that they were deleted while we were away."""
        fs = self._runtime.fs
        known = {directory_name(topic.name, topic.id) for topic in self._image.topics.values()}
        moved = []
        for name in fs.list_dir(self._log_dir):
            if name.endswith(DOOMED):
                fs.remove_tree(f"{self._log_dir}/{name}")
            elif name in known:
                _finish_removals(fs, f"{self._log_dir}/{name}")
            elif self._image.was_deleted(name.rpartition("@")[2]):
                _remove(fs, f"{self._log_dir}/{name}")
            elif "@" in name:
                home = self._quarantine
                fs.make_dirs(home)
                fs.rename(f"{self._log_dir}/{name}", f"{home}/{name}")
                moved.append(name)
                log.error("no topic claims %s: moved to %s, nothing was deleted (S12)", name, home)
        return moved


def _put_aside(fs: FileSystem, directory: str, home: str, name: str) -> None:
    fs.make_dirs(home)
    fs.rename(directory, f"{home}/{name}")


def _remove(fs: FileSystem, directory: str) -> None:
    # Renamed first, so that a crash half-way can't leave something that looks like a topic (S20). What an earlier removal
    # of the same replica left behind would be in the way.
    doomed = directory + DOOMED
    if fs.exists(doomed):
        fs.remove_tree(doomed)
    fs.rename(directory, doomed)
    fs.remove_tree(doomed)


def _finish_removals(fs: FileSystem, topic_directory: str) -> None:
    """Replicas that were being removed from this topic when the broker stopped."""
    for name in fs.list_dir(topic_directory):
        if name.endswith(DOOMED) and is_digits(name.removesuffix(DOOMED)):
            fs.remove_tree(f"{topic_directory}/{name}")
