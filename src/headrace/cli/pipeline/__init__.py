"""The commands around pipelines: Spark jobs that Headrace knows about."""

HELP = "Keep as tables, replay, transform, aggregate, mirror and audit topics with Spark."
VERBS = {
    "init": "Write a definition to start from.",
    "validate": "Check a definition without running it.",
    "run": "Run a pipeline.",
    "submit": "Keep a definition in the cluster, for the supervisors to run.",
    "supervise": "Run the submitted pipelines on this host.",
    "list": "List the pipelines that the broker has heard of.",
    "status": "Show one pipeline.",
    "logs": "Show what a run of a submitted pipeline has printed.",
    "history": "List the runs of a submitted pipeline.",
    "checkpoint": "Show how far a submitted pipeline is.",
    "export": "Print a version of a submitted definition.",
    "diff": "Show what has changed in a submitted definition.",
    "rollback": "Make an earlier version of a submitted pipeline the next one.",
    "stop": "Ask a running pipeline to stop.",
    "restart": "Start a submitted pipeline again.",
    "remove": "Take a pipeline away.",
    "convert": "Make an archive into the table of a pipeline.",
    "redrive-rows": "Try the dead rows of a table again.",
}
