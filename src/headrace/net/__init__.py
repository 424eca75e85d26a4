"""How the outside is reached over HTTP: the client of the coordinator, of webhooks and of brokers among themselves."""
