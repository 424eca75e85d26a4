"""The commands that look inside a data directory."""

HELP = "Look inside a data directory."
VERBS = {
    "dump-log": "Show the record batches of segment files, and where they are damaged.",
}
