"""The commands around configs of brokers, which change while they run."""

HELP = "Show and change configs of brokers while they run."
VERBS = {
    "get": "Show configs of the cluster or of one broker.",
    "set": "Change configs of the cluster or of one broker.",
}
