"""Drivers: partitions, produce, fetch, parking, flusher, shard runtime."""
