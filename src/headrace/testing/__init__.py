"""Public: embedded broker, virtual clock, simulated network and disk, checkers."""

from headrace.testing.local_broker import LocalBroker

__all__ = ["LocalBroker"]
