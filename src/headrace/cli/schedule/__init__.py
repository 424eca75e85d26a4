"""The commands around messages that wait for their time, and cron schedules."""

HELP = "Look at, move and cancel messages that wait; send by the calendar."
VERBS = {
    "list": "List the messages of a queue that wait, or the cron schedules.",
    "cancel": "Cancel a message that waits, or end a cron schedule.",
    "move": "Give a message that waits another time.",
    "run": "Send the message of a cron schedule now.",
    "pause": "Let the ticks of a cron schedule pass.",
    "resume": "Go on with a cron schedule.",
    "add": "Send a message by the calendar.",
}
