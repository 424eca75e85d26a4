"""The commands around quotas."""

HELP = "Limits on what users and clients use: bytes in and out, and the broker's time."
VERBS = {
    "list": "List quotas.",
    "set": "Limit a user, a client id, or everybody else.",
    "delete": "Take a quota away.",
}
