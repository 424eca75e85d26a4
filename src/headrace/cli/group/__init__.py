"""The commands around consumer groups."""

HELP = "Look at consumer groups and move them."
VERBS = {
    "list": "List the groups.",
    "describe": "Show members, offsets and lag of groups.",
    "lag": "Show how far groups are behind.",
    "explain": "Say why a group is behind.",
    "seek": "Move the committed offsets of a group.",
    "copy-offsets": "Let a group go on where another one is.",
    "delete-offsets": "Forget what a group has committed for topics that it does not read any more.",
    "delete": "Delete groups and their committed offsets.",
}
