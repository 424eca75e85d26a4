"""The commands around subscriptions: named queues over topics that others own."""

HELP = "Named queues over one or more topics; each gets everything, several readers share one."
VERBS = {
    "create": "Subscribe to topics.",
    "list": "List the subscriptions.",
    "describe": "Show a subscription with its settings.",
    "set": "Change the settings of a subscription; pause and resume it.",
    "delete": "End subscriptions; the topics stay.",
}
