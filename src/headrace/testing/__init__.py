"""Public: embedded broker, virtual clock, simulated network and disk, checkers."""
