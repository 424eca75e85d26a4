"""The commands around the cluster: its brokers and where the partitions are."""

HELP = "Look at the brokers, drain one, spread the load."
VERBS = {
    "status": "Show how the cluster is: brokers, controller, partitions in trouble.",
    "nodes": "List the brokers with what they hold.",
    "happenings": "Show what happened lately, the newest first.",
    "partitions": "List partitions with leaders and replicas, those in trouble first.",
    "drain": "Move everything off a broker, so that it can be taken away.",
    "rebalance": "Give every broker its share of partitions and leaderships.",
    "elect": "Let the preferred replicas lead again.",
    "unregister": "Forget a broker that will not come back.",
    "config": "Show and change configs of brokers while they run.",
}
