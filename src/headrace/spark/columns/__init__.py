"""Record batches as numpy columns, for Spark workers. The broker has no numpy."""
