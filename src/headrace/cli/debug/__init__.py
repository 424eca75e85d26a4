"""The commands that look inside."""

HELP = "Look inside a data directory, and collect what helps to find a fault."
VERBS = {
    "bundle": "Collect what helps to find a fault: versions, settings, checks, numbers and the end of the log.",
    "dump-log": "Show the record batches of segment files, and where they are damaged.",
}
