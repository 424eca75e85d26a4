"""The commands around the schema registry."""

HELP = "Register schemas of messages, look at them, hold one against another."
VERBS = {
    "list": "List the subjects of the schema registry.",
    "get": "Show a schema.",
    "register": "Register a schema as the next version of a subject.",
    "check": "Say whether a schema could be registered, and what is in the way.",
    "compat": "Show or set which changes of schemas are allowed.",
    "delete": "Delete versions of a subject.",
}
