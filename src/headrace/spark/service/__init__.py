"""Pipelines as a service: definitions kept in the cluster, and supervisors that run each of them on exactly one host.

`records` is what is kept, `store` where, `keeper` decides, `supervisor` carries out, `leash` ends a run whose supervisor is gone."""
