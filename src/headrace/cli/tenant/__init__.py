"""The commands around tenants."""

HELP = "Parts of a cluster that belong to somebody: a prefix, its rights, a quota, a token."
VERBS = {
    "create": "Make a tenant, and show its token once.",
    "list": "List tenants, what they have and their limits.",
    "delete": "End tenants.",
}
