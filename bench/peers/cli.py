"""Headrace and its peers in one run: the same work for all, in turns; a table with ratios, and plots.

    make bench-peers [PEERS="--short"]
    .venv/bin/python bench/peers [--short] [--only ROW[,ROW]] [--sides SIDE[,SIDE]] [--minutes M] [--out BASE] [--add] [--list]

Peers are obtained when they are first needed (Maven Central, the Go proxy, Debian, PyPI) and kept in .peers and .interop; one that can't
be had is said in the table. All listen on loopback, have a directory of their own that is removed, and are ended by their ids, also on Ctrl-C.
A run takes at most --minutes (38; --short: 7.5): rows that have not begun by then are said to be missing. Figures mean something on
a quiet machine; the load average is in the table. Results: bench/results/peers-DATE.json, .md and plots; `--add` keeps the rows that are there
already and are not measured now.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from guard import machine_kind

from peers import report, rows_bulk, rows_groups, rows_small, rows_sqs, rows_standing
from peers.rounds import FULL, SHORT, TINY, Found, Pool, Row, Size, aloud, measure

RESULTS = Path(__file__).resolve().parents[1] / "results"
ROWS: list[Row] = [
    *rows_standing.IDLE,
    *rows_small.ROWS,
    *rows_small.TASKS,
    *rows_bulk.ROWS,
    *rows_groups.ROWS,
    *rows_sqs.ROWS,
    *rows_standing.THREE,
    *rows_bulk.REPLICATED,
    *rows_standing.FAILOVER,
    *rows_standing.LIFE,
]
"""Those with the same peers follow each other: they are started once. Idle comes first, while there is no data."""


def chosen(rows: Sequence[Row], only: str | None, sides: str | None) -> list[Row]:
    keys = only.split(",") if only else [row.key for row in rows]
    for unknown in set(keys) - {row.key for row in rows}:
        sys.exit(f"error: there is no row {unknown}\n  hint: one of {', '.join(row.key for row in rows)}")
    found = [row for row in rows if row.key in keys]
    if sides:
        names = sides.split(",")
        found = [
            replace(row, sides=kept)
            for row in found
            if (kept := tuple(kind for kind in row.sides if kind.name in names))
        ]
    return found


def run(rows: Sequence[Row], size: Size, minutes: float) -> dict[str, Any]:
    began, load = time.monotonic(), os.getloadavg()[0]
    ends_at = began + minutes * 60
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch, contextlib.ExitStack() as stack:
        pool = Pool(Path(scratch), aloud)
        stack.callback(pool.close)
        for row in rows:
            if time.monotonic() > ends_at:
                found[row.key] = Found(missing={kind.name: "the time was up" for kind in row.sides})
                continue
            aloud(f"{row.key}: {row.title} ({(time.monotonic() - began) / 60:.1f} min)")
            found[row.key] = measure(row, pool, size, ends_at, aloud)
    about = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "size": size.name,
        "machine": machine_kind(),
        "revision": revision(),
        "load": [load, os.getloadavg()[0]],
        "minutes": (time.monotonic() - began) / 60,
        "versions": pool.versions,
    }
    return report.document(rows, found, about)


def revision() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False, cwd=RESULTS.parent)  # fmt: skip
    return done.stdout.strip() or "an unknown revision"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="small amounts: a look, not figures")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", metavar="ROW", help="some rows, with commas between them")
    parser.add_argument("--sides", metavar="SIDE", help="some peers, with commas between them")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--add", action="store_true", help="to the rows that are in the results already")
    parser.add_argument("--out", type=Path, help="where results go, without a suffix")
    parser.add_argument("--list", action="store_true", help="rows and their sides")
    options = parser.parse_args(arguments)
    rows = chosen(ROWS, options.only, options.sides)
    if options.list:
        for row in rows:
            print(f"{row.key:16} {row.title}: {', '.join(kind.name for kind in row.sides)}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything that was started is ended
    size = TINY if options.tiny else SHORT if options.short else FULL
    told = run(rows, size, options.minutes or size.minutes)
    day = told["about"]["date"].split()[0]
    base = options.out or RESULTS / f"peers-{day}"
    kept = base.with_name(f"{base.name}.json")
    if options.add and kept.exists():
        told = report.added(json.loads(kept.read_text()), told)
    for file in report.write(told, base):
        print(file)
    return 0
