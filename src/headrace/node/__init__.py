"""Settings, wiring, start and stop of one broker."""
