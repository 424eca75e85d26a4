"""Cost before and after: `single_node.py` of another revision and of this tree, in turns, as a table of ratios.

    .venv/bin/python bench/before_after.py 1ce25df [--minutes 11] [--mb 200] [--requests 30000] [--json]

Each turn runs the bench of one side in a process of its own, this interpreter with that side's sources; who goes first alternates.
A ratio is the median over the pairs of turns, so what slows the machine down for a while slows both sides down. Rows
of CPU (CPU-s/GB, µs CPU, MB) mean something on a busy machine; rates and latencies want a quiet one. Exit code 1: a row of
CPU or memory is more than --allowed percent dearer than before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
COSTS = ("CPU-s/GB", "µs CPU", "MB", "CPU-s")
"""Units of which less is better and which the machine's load moves little."""
RATES = ("MB/s", "/s")


def checkout(revision: str, into: str) -> Path:
    tree = Path(into) / "before"
    for command in (
        ["git", "clone", "--quiet", "--shared", "--no-checkout", str(HERE), str(tree)],
        ["git", "-C", str(tree), "checkout", "--quiet", "--detach", revision],
    ):
        subprocess.run(command, check=True)
    return tree


def turn(tree: Path, arguments: list[str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(tree / "bench" / "single_node.py"), "--json", *arguments],
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        cwd=tree,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def pairs(sides: dict[str, Path], arguments: list[str], minutes: float) -> list[dict[str, dict[str, float]]]:
    """As many as fit into the time, at least one."""
    found: list[dict[str, dict[str, float]]] = []
    started = time.monotonic()
    longest = 0.0
    while not found or time.monotonic() + longest < started + minutes * 60:
        began = time.monotonic()
        order = list(sides) if len(found) % 2 else list(reversed(sides))
        found.append({side: turn(sides[side], arguments) for side in order})
        longest = max(longest, time.monotonic() - began)
        print(f"pair {len(found)}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def compare(found: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    rows = [name for name in found[0]["after"] if name in found[0]["before"]]
    table: dict[str, dict[str, float]] = {}
    for name in rows:
        ratios = [pair["after"][name] / pair["before"][name] for pair in found if pair["before"][name]]
        if ratios:
            table[name] = {
                "before": statistics.median(pair["before"][name] for pair in found),
                "after": statistics.median(pair["after"][name] for pair in found),
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
            }
    return table


def verdict(name: str, ratio: float, allowed: float) -> str:
    unit = name.rsplit(": ", 1)[-1]
    if unit in COSTS:
        return "DEARER" if ratio > 1 + allowed / 100 else ""
    worse = 1 / ratio if unit.endswith(RATES) else ratio
    return "slower?" if worse > 1 + allowed / 100 else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", help="what to compare with")
    parser.add_argument(
        "--minutes", type=float, default=11, help="how long to go on; at least one pair is run"
    )
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--only", choices=["start", "idle", "bulk", "small"])
    parser.add_argument("--allowed", type=float, default=5, help="percent")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    arguments = ["--mb", str(options.mb), "--requests", str(options.requests)]
    if options.only:
        arguments += ["--only", options.only]
    with tempfile.TemporaryDirectory(prefix="headrace-before-") as scratch:
        sides = {"before": checkout(options.revision, scratch), "after": HERE}
        table = compare(pairs(sides, arguments, options.minutes))
    if options.json:
        print(json.dumps(table, indent=2, ensure_ascii=False))
    else:
        print(f"{'':55} {'before':>10} {'after':>10} {'ratio':>7}  {'least':>6} {'most':>6}")
        for name, row in table.items():
            marks = verdict(name, row["ratio"], options.allowed)
            print(
                f"{name:55} {row['before']:10,.2f} {row['after']:10,.2f} {row['ratio']:7.3f}"
                f"  {row['least']:6.2f} {row['most']:6.2f}  {marks}"
            )
    sys.exit(any(verdict(name, row["ratio"], options.allowed) == "DEARER" for name, row in table.items()))


if __name__ == "__main__":
    main()
