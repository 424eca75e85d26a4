"""The partition log: segments, indexes, recovery, epochs, producers, retention, compaction. Pure, given a file system port."""
