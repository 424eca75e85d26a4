"""Drivers of the queue engine: journals beside the data, what the log tells the engine, and what the doors ask."""
