"""Door: one module per Kafka API, named by its key. Each declares KEY and VERSIONS; dispatch.py finds it."""
