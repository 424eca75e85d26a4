"""Command: progress on the stderr of a person's terminal, erased at the end; nothing at all anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.cli.invocation import Invocation

Advance = Callable[[int], None]


@contextmanager
def progress(run: Invocation, what: str, total: int | None, *, size: bool = False) -> Iterator[Advance]:
    """`with progress(run, "Publishing", 1000) as advance: advance(1)`. `size`: it counts bytes."""
    if not run.shows_progress:
        yield lambda count: None
        return
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

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if size else MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, no_color=not run.colours(sys.stderr)),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=total)

        def advance(count: int) -> None:
            bar.update(task, advance=count)

        yield advance
