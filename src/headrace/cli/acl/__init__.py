"""The commands around rights."""

HELP = "Give and take rights, and find out why something is denied."
VERBS = {
    "grant": "Give a user all rights of a role.",
    "revoke": "Take all rights of a role from a user, also those that were given by themselves.",
    "add": "Give a user rights.",
    "list": "List the rights.",
    "remove": "Take rights away.",
    "explain": "Say whether a user may do something, by which rule, and what would allow it.",
    "suggest": "Write the rights that were missing.",
    "copy": "Give a user the rights that another has.",
}
