"""Kafka protocol codec: primitives, schema notation, messages, API table. Pure."""
