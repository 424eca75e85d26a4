"""The commands around dead letters."""

HELP = "Look at dead letters, edit them, send them back."
VERBS = {
    "list": "List the queues that hold dead letters.",
    "peek": "Look at dead letters and why they are there.",
    "redrive": "Send dead letters back, all or some.",
    "edit": "Change dead letters where they are, all or some.",
    "discard": "Give dead letters up, all or some.",
    "export": "Write dead letters to a file, all or some.",
    "status": "Show how redrives are going.",
    "cancel": "Stop a redrive.",
}
