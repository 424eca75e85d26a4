"""Machine: putting a compacted segment in the place of the ones it was made from, whenever the power goes (S21).

    1  write X.log.cleaned and sync it             start-up: a .cleaned is worth nothing, remove it
    2  rename it to X.log.swap, sync the directory from here on the swap will happen
    3  rename the old segments to .deleted, X first
    4  rename X.log.swap to X.log, sync            start-up: do 3 and 4 for every .swap

X is the base offset of the first segment of the group. Start-up knows which old segments a .swap replaces by its
offsets. One beyond its last batch may survive a crash in step 3; all its records were superseded or aborted, so
reads are the same, and the next compaction takes it.

Invariant: at every moment each offset that a reader could find is in a complete .log, or in a complete .swap.
"""

from __future__ import annotations

from headrace.core.ports import File, FileSystem
from headrace.log.names import CLEANED, DELETED, LOG, SWAP, TEMPORARY, index_path, log_path, offset_of
from headrace.log.results import LogCorrupt
from headrace.log.scanning import BadBatch, scan_file


def commit_swap(fs: FileSystem, directory: str, base_offset: int) -> None:
    """Step 2: the cleaned file is complete and synced."""
    path = log_path(directory, base_offset)
    fs.rename(path + CLEANED, path + SWAP)
    fs.sync_dir(directory)


def complete_swap(fs: FileSystem, directory: str, replaced: list[int]) -> list[str]:
    """Steps 3 and 4 for the group of old segments `replaced`, whose first names the swap. Returns what is trash now."""
    for base_offset in replaced:
        if fs.exists(index_path(directory, base_offset)):
            fs.remove(index_path(directory, base_offset))
    fs.sync_dir(directory)  # no index may meet a log it does not describe
    trash = []
    for base_offset in replaced:
        path = log_path(directory, base_offset)
        if fs.exists(path):
            fs.rename(path, path + DELETED)
            trash.append(path + DELETED)
    target = log_path(directory, replaced[0])
    fs.rename(target + SWAP, target)
    fs.sync_dir(directory)
    return trash


def finish_at_start(fs: FileSystem, directory: str) -> tuple[list[str], list[str]]:
    """Complete or discard what a crash interrupted. Returns (notes for people, trash to unlink later)."""
    notes = []
    for name in fs.list_dir(directory):
        if name.endswith((CLEANED, TEMPORARY)):
            fs.remove(f"{directory}/{name}")
            notes.append(f"removed the unfinished {name}")
    names = fs.list_dir(directory)
    trash = [f"{directory}/{name}" for name in names if name.endswith(DELETED)]
    bases = [base for name in names if (base := offset_of(name, LOG)) is not None]
    for name in names:
        base_offset = offset_of(name, LOG + SWAP)
        if base_offset is None:
            continue
        next_offset = _swap_end(fs, directory, base_offset, base_offset in bases)
        if next_offset is None:
            notes.append(f"discarded the damaged {name}; what it was made from is still there")
            continue
        replaced = [base for base in bases if base_offset < base < next_offset]
        trash += complete_swap(fs, directory, [base_offset, *replaced])
        notes.append(f"completed the swap of {name}")
    return notes, sorted(set(trash))


def _swap_end(fs: FileSystem, directory: str, base_offset: int, original_exists: bool) -> int | None:
    """Where the swap's batches end; None when it is damaged but nothing was replaced yet, and it is gone now."""
    path = log_path(directory, base_offset) + SWAP
    file = fs.open(path, writable=False)
    try:
        return _end_of(file, base_offset)
    except BadBatch as error:
        if not original_exists:
            detail = f"{error.detail}; the originals are the .deleted files beside it"
            raise LogCorrupt(path, error.position, error.offset, detail) from None
    finally:
        file.close()
    fs.remove(path)
    return None


def _end_of(file: File, base_offset: int) -> int:
    next_offset = base_offset
    for batch in scan_file(file, 0, file.size, base_offset, gaps=True):
        next_offset = batch.header.next_offset
    return next_offset
