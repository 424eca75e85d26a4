"""The commands that write files for others."""

HELP = (
    "Write files for systemd, containers, Prometheus and Grafana, and first programs for clients, to stdout."
)
VERBS = {
    "systemd": "Write a unit that runs a broker as a service.",
    "prometheus-config": "Write the part of a Prometheus configuration that reads the brokers.",
    "alerts": "Write alerting rules for Prometheus, over metrics that brokers have.",
    "grafana-dashboard": "Write a dashboard for Grafana, over metrics that brokers have.",
    "compose": "Write a compose file: one broker, or a cluster with etcd.",
    "k8s": "Write Kubernetes manifests: brokers as a stateful set, and etcd.",
    "client": "Write a first program that sends and receives, with the addresses of your broker.",
}
