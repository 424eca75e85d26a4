"""The commands around the mode of security."""

HELP = "Turn authentication and rights on, look at them, turn them off."
VERBS = {
    "init": "Make what a secured cluster needs.",
    "status": "Show the mode, and who would be refused.",
    "audit": "Show who did what, the newest first.",
    "reseal": "Seal every secret anew under another key.",
    "observe": "Ask for names and note what would be denied; refuse nothing.",
    "enforce": "Refuse whoever has no name, and whatever has no right.",
    "open": "Turn authentication and rights off.",
}
