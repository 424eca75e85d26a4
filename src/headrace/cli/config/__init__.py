"""The commands around settings."""

HELP = "Show the settings and where each comes from."
VERBS = {
    "show": "Show every setting and its value.",
}
