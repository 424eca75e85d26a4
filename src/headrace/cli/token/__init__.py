"""The commands around tokens."""

HELP = "Tokens for programs that use HTTP."
VERBS = {
    "create": "Make a token, and show it once.",
    "list": "List tokens.",
    "delete": "Delete tokens by their ids.",
}
