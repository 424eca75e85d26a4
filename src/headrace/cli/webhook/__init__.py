"""The commands around webhooks: queues that are pushed to HTTP endpoints."""

HELP = "Push the messages of a queue to an HTTP endpoint, signed, with retries."
VERBS = {
    "add": "Push a queue to a URL.",
    "list": "List the webhooks and how they fare.",
    "set": "Change a webhook.",
    "test": "Send a signed test to the endpoint.",
    "confirm": "Confirm an endpoint with the token it was sent.",
    "pause": "Stop sending; messages wait in the queue.",
    "resume": "Send again after a pause, or after the endpoint said it was gone.",
    "deliveries": "Show what became of the last deliveries.",
    "retry": "Try what waits for its next attempt now.",
    "rotate": "Make a new signing secret.",
    "remove": "Remove webhooks.",
}
