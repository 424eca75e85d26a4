"""Machine: the files of a log that nothing was ever written to: whose it is, and one empty segment.

State and epochs say nothing yet that a restart would have to know, so their files come with the first batches (decision 0045). A
power cut may have kept both files, one of them, or none: all of these are the same log, and an opening completes it.
"""

from __future__ import annotations

from headrace.core.ports import FileSystem
from headrace.log.checkpoints import DamagedFile, PartitionIdentity, decode_identity, encode_identity
from headrace.log.names import LOG, PARTITION_FILE, log_path, offset_of
from headrace.log.results import WrongTopic
from headrace.log.segment import Segment


def is_untouched(fs: FileSystem, directory: str, names: list[str]) -> bool:
    """No file but those two, and no batch."""
    for name in names:
        if name != PARTITION_FILE and (offset_of(name, LOG) != 0 or _size_of(fs, f"{directory}/{name}")):
            return False
    return True


def _size_of(fs: FileSystem, path: str) -> int:
    file = fs.open(path, writable=False)
    try:
        return file.size
    finally:
        file.close()


def begin(
    fs: FileSystem, directory: str, names: list[str], topic_id: bytes, wall_ms: int
) -> tuple[Segment, int]:
    """The segment, and when the log was made. Two syncs for a new log, none for one that is complete."""
    path = f"{directory}/{PARTITION_FILE}"
    created_ms = read_identity(fs, path, topic_id) if PARTITION_FILE in names else None
    is_complete = created_ms is not None and len(names) == 2
    if created_ms is None:
        created_ms = wall_ms
        if PARTITION_FILE in names:
            fs.remove(path)
        file = fs.open(path, create=True)
        try:
            file.append([encode_identity(PartitionIdentity(topic_id, created_ms))])
            file.sync()
        finally:
            file.close()
    segment = Segment(log_path(directory, 0), 0)
    segment.file = fs.open(segment.path, create=True)
    if not is_complete:
        try:
            fs.sync_dir(directory)
        except BaseException:
            segment.file.close()
            raise
    return segment, created_ms


def read_identity(fs: FileSystem, path: str, topic_id: bytes) -> int | None:
    """When the log was made; None: the file can't be read."""
    try:
        found = decode_identity(fs.read_file(path))
    except DamagedFile:
        return None
    if found.topic_id != topic_id:
        raise WrongTopic(path.rpartition("/")[0], found.topic_id, topic_id)
    return found.created_ms
