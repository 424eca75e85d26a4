"""The commands around topics."""

HELP = "Create, change, write and read topics."
VERBS = {
    "create": "Create topics.",
    "list": "List the topics.",
    "describe": "Show partitions, offsets and configs of topics.",
    "alter": "Add partitions to a topic, or change its configs.",
    "delete": "Delete topics and everything in them.",
    "produce": "Publish messages to a topic.",
    "consume": "Read messages from topics.",
    "search": "Look for messages in a topic, newest first.",
    "export": "Write the messages of a topic to a file.",
    "tail": "Show the last messages of topics, then new ones as they come.",
}
