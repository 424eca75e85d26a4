"""Machine: a circuit breaker for one endpoint. While it is open nothing is received for it, so nothing is used up.

    closed --(several failures in a row)--> open --(a rest)--> half open: one probe --success--> closed
                                             ^------------------- failure, longer rest ---------'

Invariant: an answer to a request from before the circuit opened says nothing about the endpoint now and changes nothing; each
permit carries the generation it was given in.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.push.backoff import RetryPolicy

UNLIMITED = 1 << 30


class CircuitState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


REST = RetryPolicy(initial_ms=2_000, multiplier=2.0, max_ms=5 * 60 * 1000, jitter=0.25)


@dataclass(frozen=True, slots=True)
class CircuitRules:
    failures: int = 5
    """In a row; one success begins the count again."""
    rest: RetryPolicy = REST


class Circuit:
    __slots__ = ("_failures", "_openings", "_probe_out", "_rules", "_until_ms", "generation", "state")

    def __init__(self, rules: CircuitRules = CircuitRules()) -> None:  # noqa: B008 - an immutable value
        self._rules = rules
        self.state = CircuitState.CLOSED
        self.generation = 0
        self._failures = 0
        self._openings = 0
        """Without a success in between."""
        self._until_ms = 0
        self._probe_out = False

    def permits(self, now_ms: int) -> int:
        """How many requests may begin now."""
        if now_ms < self._until_ms:
            return 0
        if self.state is CircuitState.OPEN:
            self.state = CircuitState.HALF_OPEN
            self.generation += 1
            self._probe_out = False
        if self.state is CircuitState.HALF_OPEN:
            return 0 if self._probe_out else 1
        return UNLIMITED

    def wait_ms(self, now_ms: int) -> int:
        """Until time alone may permit something; 0 when it does now, or when an answer has to come first."""
        return max(0, self._until_ms - now_ms)

    def began(self) -> int:
        """A request is on its way. The answer is the generation to report its outcome with."""
        if self.state is CircuitState.HALF_OPEN:
            self._probe_out = True
        return self.generation

    def succeeded(self, generation: int) -> None:
        if generation != self.generation:
            return
        self._failures = 0
        self._probe_out = False
        if self.state is not CircuitState.CLOSED:
            self.state = CircuitState.CLOSED
            self._openings = 0
            self._until_ms = 0

    def failed(self, generation: int, now_ms: int, draw: float) -> bool:
        """True when this opened the circuit."""
        if generation != self.generation:
            return False
        self._failures += 1
        if self.state is CircuitState.CLOSED and self._failures < self._rules.failures:
            return False
        self._openings += 1
        self._open_until(now_ms + self._rules.rest.delay_ms(self._openings, draw))
        return True

    def abandoned(self, generation: int) -> None:
        """The request came to nothing that says anything about the endpoint."""
        if generation == self.generation:
            self._probe_out = False

    def hold(self, until_ms: int) -> None:
        """The endpoint asked for a pause (Retry-After). Nothing is wrong with it, so nothing is counted."""
        self._until_ms = max(self._until_ms, until_ms)
        self._probe_out = False

    def reset(self) -> None:
        """A person says that it works now."""
        self.state = CircuitState.CLOSED
        self.generation += 1
        self._failures = self._openings = self._until_ms = 0
        self._probe_out = False

    def _open_until(self, until_ms: int) -> None:
        self.state = CircuitState.OPEN
        self.generation += 1
        self._failures = 0
        self._probe_out = False
        self._until_ms = max(self._until_ms, until_ms)
