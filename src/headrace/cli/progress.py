"""Command: progress on the stderr of a person's terminal, erased at the end; nothing at all anywhere else."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from headrace.cli.invocation import Invocation
from headrace.cli.output import printable

Advance = Callable[[int], None]

SHOWN_AFTER_S = 0.3
"""What is done sooner needs no bar: it would only flicker."""


@contextmanager
def progress(
    run: Invocation, what: str, total: int | None, *, size: bool = False, prints: bool = False
) -> Iterator[Advance]:
    """`with progress(run, "Publishing", 1000) as advance: advance(1)`. `size`: it counts bytes. Without a total it turns and counts.
    `prints`: the work is printing, and nobody is told of it who sees it come."""
    if not run.shows_progress or (prints and not _fills_a_file()):
        yield lambda count: None
        return
    bar = _bar(run, size=size)
    task = bar.add_task(printable(what), total=total)
    starting = Timer(SHOWN_AFTER_S, bar.start)
    starting.daemon = True
    starting.start()
    try:
        yield lambda count: bar.update(task, advance=count)
    finally:
        starting.cancel()
        starting.join()
        if bar.live.is_started:
            bar.stop()


def _fills_a_file() -> bool:
    """Not a terminal, where it can be seen, and not a pipe: a pager draws where a bar would be."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _bar(run: Invocation, *, size: bool) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn() if size else MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, no_color=not run.colours(sys.stderr)),
        transient=True,
    )
