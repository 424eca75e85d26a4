"""What a client has asked and been answered, told by its own log: whose fault is it when a call does not return?

librdkafka says "Sent …Request (…, CorrId 7)" and "Received …Response (…, CorrId 7, …)" per connection (debug=protocol,broker).
A request on a connection that is still up and has no answer is owed to it by a broker. A client that waits although nothing is
owed to it waits for itself.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

_SENT = re.compile(r"\[thrd:([^\]]*)\].*: Sent (\w+)Request \(.*CorrId (\d+)")
_RECEIVED = re.compile(r"\[thrd:([^\]]*)\].*: Received (\w+)Response \(.*CorrId (\d+)")
_DOWN = re.compile(r"\[thrd:([^\]]*)\].*Broker changed state \w+ -> DOWN")
_DOOMED = re.compile(r"^TERMINATE .*\[thrd:([^\]]*)\].*is terminating")
_GIVEN_UP = re.compile(r"Timed out (\w+)Request in flight")


class Asked(NamedTuple):
    connection: str
    number: int
    what: str


class Exchange(logging.Handler):
    """Hears a client's log. `lines` are its last words."""

    def __init__(self, kept: int = 120) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=kept)
        self.unanswered: set[Asked] = set()
        self.given_up: deque[str] = deque(maxlen=10)
        """Requests in flight that the client stopped waiting for, because they took longer than it allows."""
        self.give_ups = 0
        self.doomed: Counter[str] = Counter()
        """Brokers that the client is about to forget because they are gone from the metadata, and can't (its issue 5511): it
        says so in a loop, and a call which waits for such a coordinator does not return."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if found := _SENT.search(text):
            self.unanswered.add(Asked(found[1], int(found[3]), found[2]))
        elif found := _RECEIVED.search(text):
            self.unanswered.discard(Asked(found[1], int(found[3]), found[2]))
        elif found := _DOWN.search(text):
            self.unanswered -= {asked for asked in self.unanswered if asked.connection == found[1]}
        elif found := _GIVEN_UP.search(text):
            self.give_ups += 1
            self.given_up.append(found[1])
        elif found := _DOOMED.search(text):
            self.doomed[found[1]] += 1
            return
        self.lines.append(f"{time.strftime('%H:%M:%S')} {text}"[:240])

    def owed(self, listen: Callable[[], object], apart_s: float = 5.0, tries: int = 12) -> list[str]:
        """What no broker has answered; empty once there was a span in which nothing was left open. `listen` serves the log."""
        for _ in range(tries):
            listen()
            before, give_ups = set(self.unanswered), self.give_ups
            time.sleep(apart_s)
            listen()
            if not before & self.unanswered and give_ups == self.give_ups:
                return []
        return [f"{asked.what} to {asked.connection}" for asked in self.unanswered] + list(self.given_up)
