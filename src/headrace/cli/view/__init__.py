"""The commands around views."""

HELP = "Filtered, read-only topics that any Kafka client can consume."
VERBS = {
    "create": "Create a view of a topic.",
    "list": "List the views.",
    "describe": "Show where views come from, their filters and offsets.",
    "delete": "Delete views; their source stays.",
}
