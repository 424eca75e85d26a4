"""The commands around subscriptions: named queues over topics that others own."""

HELP = "Named queues over one or more topics; each gets everything, several readers share one."
VERBS = {
    "create": "Subscribe to topics.",
    "list": "List the subscriptions.",
    "delete": "End subscriptions; the topics stay.",
}
