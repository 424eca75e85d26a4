"""The commands around queues."""

HELP = "Create queues; send, receive, look at and acknowledge messages."
VERBS = {
    "create": "Create a queue.",
    "list": "List the queues.",
    "describe": "Show a queue with its settings.",
    "stats": "Show how many messages queues have, and how fast that changes.",
    "set": "Change the settings of a queue; pause and resume it.",
    "send": "Send messages to a queue.",
    "locks": "Show who holds which message.",
    "settle": "Settle messages that somebody else holds, for them.",
    "explain": "Say why a queue is behind, or hands out nothing.",
    "groups": "Show what waits for what in a FIFO queue.",
    "receive": "Take messages out of a queue.",
    "peek": "Look at messages without taking them.",
    "ack": "Say that messages are done.",
    "extend": "Keep a message for longer, or give it back.",
    "purge": "Throw away every message of a queue.",
    "delete": "Delete queues and what is in them.",
}
