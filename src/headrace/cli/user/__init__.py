"""The commands around users."""

HELP = "Make users, change their passwords, shut them out."
VERBS = {
    "create": "Make a user.",
    "list": "List the users.",
    "password": "Give a user another password.",
    "disable": "Shut a user out; open connections end.",
    "enable": "Let a disabled user in again.",
    "delete": "Delete users; open connections end.",
}
