"""Streams groups (KIP-1071): applications of Kafka Streams whose tasks the coordinator assigns.

A member brings its topology; the coordinator sees to its internal topics, counts the tasks and hands them out.
"""
