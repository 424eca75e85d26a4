"""Views: filtered, read-only topics that any Kafka client can consume."""
