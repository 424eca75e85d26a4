"""Runs tests/scenario/queues/*.txt: one file per behaviour.

Messages have names (a, b, …), in the order in which they are sent. Steps:

    queue [standard|fifo|share] key=value …     settings of QueueConfig; again: changes the queue
    send a b[group=g,priority=9,delay=5s,ttl=1m,dedup=x] …
    receive [N] [as=MEMBER] [visibility=10s]    nothing is said about what it got but the transitions
    ack|release|extend|reject NAME… [delay=5s] [for=30s] [why=text]
                                                with the last receipt; a#1 is the receipt of a's first delivery
    acknowledge MEMBER a=accept b=release …     KIP-932
    leave MEMBER
    moved NAME… ; move-failed NAME… [retry=5s]
    schedules ; reschedule NAME 5s ; cancel NAME
    purge ; seek NAME ; pause ; resume ; delete-before NAME ; counts ; peek ; duplicate? ID
    advance 30s                                 stops at every deadline on the way
    failover [after=20s]                        compact the journal, replay it into a new shard, read the log again;
                                                after a time without a leader

Output: what each message became, what was journaled, what the driver was asked to do, refusals.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from queue_desk import EPOCH_MS, SOURCE, Desk

from headrace.core.plan import Plan, Rejected
from headrace.core.units import format_duration_ms, parse_duration_ms
from headrace.queues import commands as c
from headrace.queues.config import Backoff, QueueConfig, fifo_queue, share_group

SCENARIOS = sorted((Path(__file__).parent / "queues").glob("*.txt"))
_KINDS: dict[str, Callable[..., QueueConfig]] = {
    "fifo": fifo_queue,
    "share": share_group,
    "standard": QueueConfig,
}
_MESSAGE = re.compile(r"(\w+)(?:\[(.*)\])?")


class Stage(Desk):
    """Reads steps, remembers names and receipts, and says what changed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.receipts: dict[str, list[c.Handle]] = {}
        self.seen: dict[str, str] = {}
        self.lines: list[str] = []
        self.config = QueueConfig()
        self.silent = False

    def execute(self, step: str) -> list[str]:
        self.lines = []
        verb, *words = step.split()
        options = dict(word.split("=", 1) for word in words if re.fullmatch(r"\w+=[^\[]*", word))
        names = [word for word in words if word.split("=", 1)[0] not in options]
        getattr(self, "do_" + verb.rstrip("?").replace("-", "_"))(names, options)
        self.tell()
        return self.lines

    # --- saying what happened ------------------------------------------------------------------------------------

    def carry_out(self, plan: Plan) -> None:
        for fact in plan.facts:
            if fact.durable and not self.silent:
                self.say(f"journal: {type(fact).__name__}")
        super().carry_out(plan)
        for effect in plan.effects:
            if isinstance(effect, c.MoveToDeadLetter):
                why = effect.reason.name.lower().replace("_", " ")
                detail = f" ({effect.detail})" if effect.detail else ""
                self.say(
                    f"move {self.names[effect.offset]} to {effect.dead_letter}: {why} after {effect.deliveries}{detail}"
                )

    def say(self, line: str) -> None:
        stamp = f"[{format_duration_ms(self.now_ms)}] " if self.now_ms else ""
        self.lines.append(stamp + line)

    def tell(self) -> None:
        if SOURCE not in self.shard.sources():
            return
        for offset, name in enumerate(self.names):
            new = self.describe(self.status(offset))
            old = self.seen.get(name)
            if old != new:
                self.say(f"{name}: {new}" if old is None else f"{name}: {old} → {new}")
                self.seen[name] = new

    def describe(self, status: c.MessageStatus) -> str:
        count = f"({status.deliveries})" if status.deliveries else ""
        match status.state:
            case c.MessageState.ACQUIRED:
                owner = f" by {status.owner}" if status.owner else ""
                return f"leased{count} until={format_duration_ms(status.until_ms)}{owner}"
            case c.MessageState.RESTING:
                return f"resting{count} until={format_duration_ms(status.until_ms)}"
            case c.MessageState.SCHEDULED:
                return f"scheduled until={format_duration_ms(status.until_ms - EPOCH_MS)}"
            case state:
                return state.name.lower() + count

    def refusals(self, words: list[str], answer: Any) -> None:
        answers = answer if isinstance(answer, tuple) and not isinstance(answer, Rejected) else (answer,)
        for word, one in zip(words, answers, strict=len(answers) == len(words)):
            if isinstance(one, Rejected):
                self.say(f"{word}: refused, {one.kind.name}")

    # --- names -----------------------------------------------------------------------------------------------------

    def handle(self, word: str) -> c.Handle:
        name, _, delivery = word.partition("#")
        receipts = self.receipts[name]
        return receipts[int(delivery) - 1] if delivery else receipts[-1]

    def offset(self, name: str) -> int:
        return self.names.index(name)

    # --- verbs -----------------------------------------------------------------------------------------------------

    def do_queue(self, kinds: list[str], options: dict[str, str]) -> None:
        make = _KINDS[kinds[0] if kinds else "standard"]
        values: dict[str, Any] = {}
        for key, text in options.items():
            if key == "backoff":
                values[key] = Backoff(initial_ms=parse_duration_ms(text))
            elif key == "dead_letter":
                values[key] = text
            elif text in ("yes", "no"):
                values[key] = text == "yes"
            else:
                values[key] = parse_duration_ms(text)
        self.silent = not self.shard.sources()
        self.refusals(["queue"], self.ask(c.Configure("q", make(**values))))
        if self.silent:
            self.ask(c.Open(SOURCE, 0))
        self.silent = False

    def do_send(self, words: list[str], options: dict[str, str]) -> None:
        messages = []
        for word in words:
            match = _MESSAGE.fullmatch(word)
            assert match is not None, word
            self.names.append(match.group(1))
            fields: dict[str, Any] = {"timestamp_ms": self.wall_ms}
            for pair in filter(None, (match.group(2) or "").split(",")):
                key, text = pair.split("=")
                match key:
                    case "group":
                        fields["group"] = text.encode()
                    case "dedup":
                        fields["dedup_id"] = text.encode()
                    case "priority":
                        fields["priority"] = int(text)
                    case "delay":
                        fields["due_ms"] = self.wall_ms + parse_duration_ms(text)
                    case "ttl":
                        fields["expires_ms"] = self.wall_ms + parse_duration_ms(text)
            messages.append(c.LoggedMessage(0, **fields))
        self.send(*messages)

    def do_receive(self, words: list[str], options: dict[str, str]) -> None:
        visibility = parse_duration_ms(options["visibility"]) if "visibility" in options else None
        limit = int(words[0]) if words else 10
        answer = self.ask(c.Receive(SOURCE, limit, visibility, options.get("as", "")))
        handles = answer.handles()
        for handle in handles:
            self.receipts.setdefault(self.names[handle.offset], []).append(handle)
        got = " ".join(self.names[handle.offset] for handle in handles)
        reason = " (paused)" if answer.paused else " (too many in flight)" if answer.limited else ""
        self.say(f"received: {got or 'nothing'}{reason}")

    def do_ack(self, words: list[str], options: dict[str, str]) -> None:
        self.refusals(words, self.ask(c.Ack(SOURCE, tuple(map(self.handle, words)))))

    def do_release(self, words: list[str], options: dict[str, str]) -> None:
        delay = parse_duration_ms(options["delay"]) if "delay" in options else None
        self.refusals(words, self.ask(c.Release(SOURCE, tuple(map(self.handle, words)), delay)))

    def do_extend(self, words: list[str], options: dict[str, str]) -> None:
        visibility = parse_duration_ms(options["for"])
        self.refusals(words, self.ask(c.Extend(SOURCE, tuple(map(self.handle, words)), visibility)))

    def do_reject(self, words: list[str], options: dict[str, str]) -> None:
        self.refusals(
            words, self.ask(c.RejectMessages(SOURCE, tuple(map(self.handle, words)), options.get("why", "")))
        )

    def do_acknowledge(self, words: list[str], options: dict[str, str]) -> None:
        batches = tuple(
            (self.offset(name), self.offset(name), (c.AckType[kind.upper()],))
            for name, kind in options.items()
        )
        self.refusals(["acknowledge"], self.ask(c.Acknowledge(SOURCE, words[0], batches)))

    def do_leave(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(c.ReleaseOwner("q", words[0]))

    def do_moved(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(c.DeadLettersWritten(SOURCE, tuple(map(self.offset, words))))

    def do_move_failed(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(c.MoveFailed(SOURCE, tuple(map(self.offset, words)), parse_duration_ms(options["retry"])))

    def do_schedules(self, words: list[str], options: dict[str, str]) -> None:
        for offset, due_ms in self.ask(c.ListSchedules(SOURCE)):
            self.say(f"{self.names[offset]} at {format_duration_ms(due_ms - EPOCH_MS)}")

    def do_reschedule(self, words: list[str], options: dict[str, str]) -> None:
        due_ms = EPOCH_MS + parse_duration_ms(words[1])
        self.refusals(words[:1], self.ask(c.MoveSchedule(SOURCE, self.offset(words[0]), due_ms)))

    def do_cancel(self, words: list[str], options: dict[str, str]) -> None:
        self.refusals(words, self.ask(c.CancelSchedule(SOURCE, self.offset(words[0]))))

    def do_purge(self, words: list[str], options: dict[str, str]) -> None:
        self.refusals(["purge"], self.ask(c.Purge(SOURCE, min_interval_ms=60_000)))

    def do_seek(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(c.SeekSource(SOURCE, self.offset(words[0])))

    def do_pause(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(c.Pause("q"))

    def do_resume(self, words: list[str], options: dict[str, str]) -> None:
        self.ask(c.Pause("q", False))

    def do_delete_before(self, words: list[str], options: dict[str, str]) -> None:
        self.log_start[SOURCE] = self.offset(words[0])
        self.announce()

    def do_counts(self, words: list[str], options: dict[str, str]) -> None:
        counts = self.ask(c.Describe(SOURCE))
        self.say(
            f"visible={counts.visible} in_flight={counts.in_flight} delayed={counts.delayed} dying={counts.dying}"
        )

    def do_peek(self, words: list[str], options: dict[str, str]) -> None:
        self.say("peeked: " + " ".join(self.names[offset] for offset in self.ask(c.Peek(SOURCE))))

    def do_duplicate(self, words: list[str], options: dict[str, str]) -> None:
        found = self.ask(c.FindDuplicate(SOURCE, words[0].encode(), self.wall_ms))
        self.say(f"{words[0]}: " + ("new" if found is None else f"duplicate of {self.names[found]}"))

    def do_advance(self, words: list[str], options: dict[str, str]) -> None:
        until_ms = self.now_ms + parse_duration_ms(words[0])
        while (at := self.shard.next_deadline()) is not None and at <= until_ms:
            self.now_ms = max(self.now_ms, at)
            self.carry_out(self.shard.expire(self.now_ms))
            self.tell()
        self.now_ms = until_ms

    def do_failover(self, words: list[str], options: dict[str, str]) -> None:
        self.now_ms += parse_duration_ms(options.get("after", "0"))
        self.crash(compact_to=len(self.journal))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, scenario: Callable[[Path, Callable[[str], list[str]]], None]) -> None:
    scenario(path, Stage().execute)


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) > 8
