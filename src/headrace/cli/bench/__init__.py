"""The commands that measure."""

HELP = """Measure throughput, latency and the broker's CPU.

CPU seconds per GB and per request do not depend on how busy the machine is; compare those."""
VERBS = {
    "produce": "Publish as fast as it goes.",
    "consume": "Read as fast as it goes.",
    "queue": "Send, receive and acknowledge as fast as it goes.",
    "latency": "Publish at a steady rate and time each message end to end.",
}
