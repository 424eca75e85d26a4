"""The commands around dead letters."""

HELP = "Look at dead letters and send them back."
VERBS = {
    "list": "List the queues that hold dead letters.",
    "peek": "Look at dead letters and why they are there.",
    "redrive": "Send dead letters back, all or some.",
    "status": "Show how redrives are going.",
    "cancel": "Stop a redrive.",
}
