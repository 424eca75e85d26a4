"""Push: messages of queues sent to HTTP endpoints, by an ordinary consumer of the queue on its leader."""
