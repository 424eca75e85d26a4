"""Headrace: a distributed message queue. One durable log; Kafka, SQS, REST and Spark are its doors."""

__version__ = "0.1.0"
