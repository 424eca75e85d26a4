"""The commands around certificates."""

HELP = "Make certificates for brokers and clients, look at them, renew them."
VERBS = {
    "ca": "Make an authority that signs certificates.",
    "issue": "Make a certificate for names and addresses.",
    "renew": "Make a certificate anew, with the names that it has.",
    "show": "Show what is in a certificate.",
    "check": "Say what is wrong with a certificate.",
}
