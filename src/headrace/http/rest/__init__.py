"""Door: REST for people with curl and programs without a client library. JSON in and out, problem+json for refusals."""
