"""Codec: what REST takes and answers, as msgspec structs, by resource."""
