"""The commands around contexts."""

HELP = """Named ways to a broker: where it is, who you are, whom you trust.

The one in use counts for every command; --context and HEADRACE_CONTEXT choose another one."""
VERBS = {
    "add": "Add a context.",
    "use": "Use a context from now on.",
    "list": "List contexts.",
    "show": "Show a context, or the one that counts here.",
    "rm": "Remove contexts.",
}
