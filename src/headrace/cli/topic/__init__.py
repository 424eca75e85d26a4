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
    "peek": "Look at the last messages of topics, and stop.",
    "search": "Look for messages in a topic, newest first.",
    "trace": "Show what became of a message.",
    "writers": "List who writes to a topic.",
    "export": "Write the messages of a topic to a file.",
    "import": "Publish the messages of a file that was exported.",
    "copy": "Copy messages from one topic to another.",
    "trim": "Delete the oldest messages of topics, up to an offset or a time.",
    "tail": "Show the last messages of topics, then new ones as they come.",
}
