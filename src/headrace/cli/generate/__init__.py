"""The commands that write files for others."""

HELP = "Write files for systemd and Prometheus, and first programs for clients, to stdout."
VERBS = {
    "systemd": "Write a unit that runs a broker as a service.",
    "prometheus-config": "Write the part of a Prometheus configuration that reads the brokers.",
    "alerts": "Write alerting rules for Prometheus, over metrics that brokers have.",
    "client": "Write a first program that sends and receives, with the addresses of your broker.",
}
