"""Driver: the commit log of an archive: which files it holds and up to which offset. The files are what the log says.

    archive/
      date=2026-11-15/hour=21/orders-0-…-….parquet     plain Parquet for anybody
      _log/00000000000000000007.json                  round 7: offsets from and to, files that came and went
      _log/snapshot-00000000000000000100.json         everything up to round 100 in one
      _staging/                                       files of a round that is not in the log (yet)
      _trash/                                         files that compaction has replaced

A round exists from the moment its log file does, which is made by linking a finished file to its name: create-if-absent, so
that of two archivers one fails and says so. Only then are its files moved from _staging to their places. A crash between
the two is repaired when the archive is opened. It is a POSIX directory: local, or shared by driver and executors.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.core.ids import TopicPartition
from headrace.spark.plan import from_json, to_json

_SNAPSHOT_EVERY = 100


class RoundTaken(RuntimeError):
    """Somebody else has committed this round: another archiver writes here."""


@dataclass(slots=True)
class ArchiveState:
    next_round: int = 0
    start: dict[TopicPartition, int] = field(default_factory=dict)
    """Where each partition's archive begins."""
    end: dict[TopicPartition, int] = field(default_factory=dict)
    """Not included: what comes next."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Path within the archive -> topic and its id, partition, rows, offsets, times, bytes."""
    ids: dict[str, str] = field(default_factory=dict)
    """Which topic of each name this is; offsets of another one mean nothing here."""
    skipped: dict[TopicPartition, int] = field(default_factory=dict)
    """Records that were gone before they were archived."""

    def apply(self, entry: Mapping[str, Any]) -> None:
        self.next_round = entry["round"] + 1
        ids: dict[str, str] = entry.get("ids", {})
        anew = {topic for topic, one in ids.items() if self.ids.get(topic, one) != one}
        for known in (self.start, self.end):
            for tp in [tp for tp in known if tp.topic in anew]:
                del known[tp]
        self.ids.update(ids)
        self.skipped.update(from_json(entry.get("skipped", {})))
        for tp, offset in from_json(entry["start"]).items():
            self.start.setdefault(tp, offset)
        self.end.update(from_json(entry["end"]))
        for path in entry["removed"]:
            self.files.pop(path, None)
        for file in entry["files"]:
            self.files[file["path"]] = file

    def has(self, file: Mapping[str, Any]) -> bool:
        """Is it of the topic that has the name now, and not of one before?"""
        return bool(file.get("topic_id", "") in ("", self.ids.get(file["topic"], "")))

    def rows(self) -> int:
        return sum(file["rows"] for file in self.files.values())


class ArchiveLog:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._log = self.path / "_log"
        self.staging = self.path / "_staging"
        self._trash = self.path / "_trash"

    def exists(self) -> bool:
        return self._log.is_dir()

    def read(self) -> ArchiveState:
        """What the archive holds now."""
        state, _ = self._read()
        return state

    def _read(self) -> tuple[ArchiveState, dict[str, Any] | None]:
        state = ArchiveState()
        last: dict[str, Any] | None = None
        names = sorted(os.listdir(self._log)) if self.exists() else []
        snapshots = [name for name in names if name.startswith("snapshot-") and name.endswith(".json")]
        if snapshots:
            stored = json.loads((self._log / snapshots[-1]).read_text())
            state.apply({**stored, "removed": []})
        for name in names:
            stem = name.removesuffix(".json")
            if stem.isdigit() and name.endswith(".json") and int(stem) >= state.next_round:
                last = json.loads((self._log / name).read_text())
                state.apply(last)
        return state, last

    def open_for_writing(self) -> ArchiveState:
        """Finish what a crash has left: the moves of the last round, and files of rounds that never were."""
        for directory in (self._log, self.staging, self._trash):
            directory.mkdir(parents=True, exist_ok=True)
        state, last = self._read()
        if last is not None:
            self._settle(last)
        for orphan in os.listdir(self.staging):
            (self.staging / orphan).unlink(missing_ok=True)
        shutil.rmtree(self._trash, ignore_errors=True)
        self._trash.mkdir()
        return state

    def commit(
        self,
        state: ArchiveState,
        *,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
        files: Iterable[Mapping[str, Any]],
        removed: Iterable[str] = (),
        ids: Mapping[str, str] | None = None,
        skipped: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Make a round part of the archive, or raise RoundTaken. `state` goes along."""
        entry = {
            "round": state.next_round,
            "start": to_json(start),
            "end": to_json(end),
            "files": [dict(file) for file in files],
            "removed": list(removed),
            "ids": dict(ids or {}),
            "skipped": to_json(skipped or {}),
        }
        self._create(f"{entry['round']:020d}.json", entry)
        self._settle(entry)
        state.apply(entry)
        if state.next_round % _SNAPSHOT_EVERY == 0:
            self._snapshot(state)

    def _create(self, name: str, document: Mapping[str, Any]) -> None:
        draft = self._log / f".{name}.{os.getpid()}"
        with draft.open("w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self._log / name)
        except FileExistsError:
            raise RoundTaken(f"{self._log / name} exists: another archiver writes to {self.path}") from None
        finally:
            draft.unlink()
        _sync_directory(self._log)

    def _settle(self, entry: Mapping[str, Any]) -> None:
        """Move the round's files to their places. Again and again gives the same."""
        for file in entry["files"]:
            target = self.path / file["path"]
            staged = self.staging / file["staged"]
            if staged.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(staged, target)
        for path in entry["removed"]:
            if (self.path / path).exists():
                os.replace(self.path / path, self._trash / path.replace("/", "~"))

    def _snapshot(self, state: ArchiveState) -> None:
        document = {
            "round": state.next_round - 1,
            "start": to_json(state.start),
            "end": to_json(state.end),
            "files": list(state.files.values()),
            "ids": state.ids,
            "skipped": to_json(state.skipped),
        }
        name = f"snapshot-{document['round']:020d}.json"
        try:
            self._create(name, document)
        except RoundTaken:
            return
        for old in os.listdir(self._log):
            if (old.startswith("snapshot-") and old < name) or (
                old.removesuffix(".json").isdigit() and int(old.removesuffix(".json")) < state.next_round - 1
            ):
                (self._log / old).unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
