"""Door 1: the Kafka wire protocol."""
