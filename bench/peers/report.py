"""What was found as JSON, as a table in Markdown and as plots in SVG."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from peers.rounds import Figure, Found, Goal, Row

OURS = "headrace"


def best(values: Sequence[float], *, more: bool) -> float:
    return max(values) if more else min(values)


def spread(values: Sequence[float]) -> float:
    """Percent of the best that lie between best and worst."""
    high = max(values)
    return (high - min(values)) / high * 100 if high else 0.0


def number(value: float) -> str:
    if value != value:
        return "–"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 3
    return f"{value:,.{digits}f}"


def document(rows: Sequence[Row], found: dict[str, Found], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, by key; the values of all rounds."""
    table = {}
    for row in rows:
        one = found.get(row.key, Found())
        table[row.key] = {
            "title": row.title,
            "note": row.note,
            "figures": [_figure(figure) for figure in row.figures],
            "sides": {
                kind.name: {"title": kind.title, "durability": kind.durability, "synced": kind.synced}
                for kind in row.sides
            },
            "values": one.values,
            "missing": one.missing,
            "load": list(one.load),
        }
    return {"about": about, "rows": table}


def added(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What another run had found, and over it what this one has: each row is whole in itself, with the load it had."""
    about = {**now["about"], "versions": {**before["about"]["versions"], **now["about"]["versions"]}}
    about["minutes"] += before["about"]["minutes"]
    about["load"] = [max(pair) for pair in zip(before["about"]["load"], now["about"]["load"], strict=True)]
    return {"about": about, "rows": {**before["rows"], **now["rows"]}}


def _figure(figure: Figure) -> dict[str, Any]:
    goal = figure.goal
    shown = None if goal is None else {"limit": goal.limit, "of": list(goal.of), "side": goal.side}
    return {"name": figure.name, "more": figure.more, "goal": shown}


def markdown(told: dict[str, Any], plots: Sequence[str] = ()) -> str:
    about = told["about"]
    lines = [
        f"# Headrace beside its peers, {about['date']}",
        "",
        f"{about['size'].capitalize()} run of `make bench-peers` at {about['revision']}: {about['machine']}; load average {about['load'][0]:.1f} before and "
        f"{about['load'][1]:.1f} after; {about['minutes']:.0f} minutes.",
        "",
        "Each figure is the best of its rounds, in which everybody had the same work in turns; *rounds apart* is how far the worst is from the best, in percent "
        "of the highest. *Ratio* is Headrace to the best of the others: above 1 is better where more is better, below 1 where less is; "
        "*like for like* counts only those whose acknowledgement means the same: on disk, or not yet.",
        "",
    ]
    # What it is afterwards is the run's own.
    if about["load"][0] > 1.5:
        lines += [f"**The load average was {about['load'][0]:.1f} before:** if that went on, rates and latencies are those of a busy machine, and CPU is dearer on one, too, for everybody.", ""]  # fmt: skip
    if about["size"] == "short":
        lines += [
            "**A short run:** a JVM is not warm after so little, so the CPU of Kafka and ElasticMQ is too high here.",
            "",
        ]
    lines += [
        "| row | figure | side | value | rounds apart | ratio | like for like | goal |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    for key, row in told["rows"].items():
        lines += _table_lines(key, row)
    lines += ["", "## What an acknowledgement means", "", "| side | version | durability |", "|---|---|---|"]
    seen: dict[str, str] = {}
    for row in told["rows"].values():
        for name, side in row["sides"].items():
            version = about["versions"].get(name) or "–"
            seen.setdefault(name, f"| {side['title']} (`{name}`) | {version} | {side['durability']} |")
    lines += [*seen.values(), "", "## Notes", ""]
    lines += [f"- `{key}`: {row['note']}." for key, row in told["rows"].items() if row["note"]]
    lines += [f"- `{key}`: {side} is missing: {why}" for key, row in told["rows"].items() for side, why in row["missing"].items()]  # fmt: skip
    lines += ["", *(f"![{Path(plot).stem}]({plot})" for plot in plots)]
    return "\n".join(lines).rstrip() + "\n"


def _table_lines(key: str, row: dict[str, Any]) -> list[str]:
    lines = []
    title = f"{row['title']} (`{key}`, load {row['load'][0]:.0f})"
    for figure in row["figures"]:
        name, more = figure["name"], figure["more"]
        measured = {side: values[name] for side, values in row["values"].items() if name in values}
        others = {
            side: best(values, more=more) for side, values in measured.items() if not side.startswith(OURS)
        }
        label = name
        for side in row["sides"]:
            if side in measured:
                value = best(measured[side], more=more)
                alike = [
                    at
                    for other, at in others.items()
                    if row["sides"][other]["synced"] == row["sides"][side]["synced"]
                ]
                ratios = [
                    _ratio(value, them, more=more) if side.startswith(OURS) else ""
                    for them in (list(others.values()), alike)
                ]
                apart = f"{spread(measured[side]):.0f} %" if len(measured[side]) > 1 else ""
                goal = _goal(figure, side, value, measured)
                lines.append(
                    f"| {title} | {label} | {_strong(row['sides'][side]['title'], side)} | {number(value)} | {apart} | {' | '.join(ratios)} | {goal} |"
                )
                title, label = "", ""
    if not lines:
        lines.append(f"| {title} | not measured | | | | | | |")
    away = [row["sides"][side]["title"] for side in row["missing"]]
    return lines + [f"| | | {one} | not measured (see notes) | | | | |" for one in away]


def _ratio(value: float, others: list[float], *, more: bool) -> str:
    return f"{value / best(others, more=more):.2f}" if others and best(others, more=more) else ""


def _strong(title: str, side: str) -> str:
    return f"**{title}**" if side.startswith(OURS) else title


def _goal(figure: dict[str, Any], side: str, value: float, measured: dict[str, list[float]]) -> str:
    if figure["goal"] is None:
        return ""
    goal = Goal(figure["goal"]["limit"], tuple(figure["goal"]["of"]), figure["goal"]["side"])
    if goal.side != side:
        return ""
    sign = "≥" if figure["more"] else "≤"
    if not goal.of:
        met = value >= goal.limit if figure["more"] else value <= goal.limit
        return f"{sign} {number(goal.limit)}: {'met' if met else 'missed'}"
    rivals = [best(measured[one], more=figure["more"]) for one in goal.of if one in measured]
    shown = f"{sign} {goal.limit:g} × {' and '.join(goal.of)}"
    if not rivals:
        return f"{shown}: not measured"
    limit = goal.limit * best(rivals, more=figure["more"])
    met = value >= limit if figure["more"] else value <= limit
    return f"{shown}: {'met' if met else 'missed'}"


WIDTH, LEFT, BAR, GAP = 760, 230, 16, 26
COLOURS = {True: "#1f6fb2", False: "#b9bec4"}


def plot(title: str, rows: Sequence[tuple[str, dict[str, Any], str]]) -> str:
    """Bars, one group for each (title, row, figure); each group has a scale of its own, and the number is beside the bar."""
    parts: list[str] = []
    y = 44
    for heading, row, name in rows:
        figure = next(one for one in row["figures"] if one["name"] == name)
        values = {
            side: best(found[name], more=figure["more"])
            for side, found in row["values"].items()
            if name in found
        }
        if not values:
            continue
        top = max(values.values()) or 1.0
        better = "more is better" if figure["more"] else "less is better"
        parts.append(
            f'<text x="12" y="{y}" font-weight="bold">{escape(heading)}: {escape(name)} ({better})</text>'
        )
        y += 8
        for side in row["sides"]:
            if side not in values:
                continue
            wide = max(1.0, (WIDTH - LEFT - 90) * values[side] / top)
            middle = y + BAR - 4
            parts.append(
                f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{escape(row["sides"][side]["title"])}</text>'
            )
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR - 3}" fill="{COLOURS[side.startswith(OURS)]}"/>'
            )
            parts.append(f'<text x="{LEFT + wide + 6:.1f}" y="{middle}">{number(values[side])}</text>')
            y += BAR
        y += GAP
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{y}" fill="white"/>',
        f'<text x="12" y="20" font-size="15">{escape(title)}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


PLOTS = {
    "rates": (("consume-1k", "MB/s"), ("consume-100", "MB/s"), ("single-64", "requests/s"), ("sqs", "taken in tens/s"), ("rf3", "MB/s")),
    "cpu": (("consume-1k", "CPU-s/GB"), ("produce-1k", "CPU-s/GB"), ("single-64", "CPU µs"), ("sqs", "taken singly: CPU µs"), ("rf3", "CPU-s/GB")),
    "latency": (("end-to-end", "p50 ms"), ("end-to-end", "p99 ms"), ("rf3-latency", "p99 ms"), ("start", "s"), ("failover", "gap s")),
}  # fmt: skip


def write(told: dict[str, Any], base: Path) -> list[Path]:
    """`base`.json, .md and the plots that there are figures for."""
    base.parent.mkdir(parents=True, exist_ok=True)
    written, pictures = [], []
    for name, wanted in PLOTS.items():
        groups = [
            (told["rows"][key]["title"], told["rows"][key], figure)
            for key, figure in wanted
            if key in told["rows"] and any(figure in found for found in told["rows"][key]["values"].values())
        ]
        if groups:
            file = base.with_name(f"{base.name}-{name}.svg")
            file.write_text(plot(f"Headrace beside its peers: {name} ({told['about']['date']}, load {told['about']['load'][0]:.1f})", groups))  # fmt: skip
            pictures.append(file.name)
            written.append(file)
    for suffix, text in {
        ".json": json.dumps(told, indent=1, ensure_ascii=False) + "\n",
        ".md": markdown(told, pictures),
    }.items():
        file = base.with_name(base.name + suffix)
        file.write_text(text)
        written.append(file)
    return written
