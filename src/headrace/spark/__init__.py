"""Spark: the data source, the exactly-once sink, the pipelines. Rides on records, wire and core only."""
