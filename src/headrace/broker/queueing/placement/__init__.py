"""Driver: where messages and partitions of a queue go."""
