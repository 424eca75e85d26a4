"""Codec: the Kafka protocol: primitives, schema notation, messages, API table. Pure."""
