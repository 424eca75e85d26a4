"""The commands around pipelines: Spark jobs that Headrace knows about."""

HELP = "Archive, replay, transform, aggregate, mirror and audit topics with Spark."
VERBS = {
    "init": "Write a definition to start from.",
    "validate": "Check a definition without running it.",
    "run": "Run a pipeline.",
    "list": "List the pipelines that the broker has heard of.",
    "status": "Show one pipeline.",
    "stop": "Ask a running pipeline to stop.",
}
