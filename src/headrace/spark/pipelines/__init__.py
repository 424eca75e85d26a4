"""Pipelines: Spark jobs that Headrace knows about. One module for each kind; `definition` is the TOML, `run` the loop."""
