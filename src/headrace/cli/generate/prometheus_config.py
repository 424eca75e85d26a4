"""Command: `headrace generate prometheus-config`."""

from __future__ import annotations

import click

from headrace.cli.generated import GeneratedRow, show
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape

SCRAPE = """\
scrape_configs:
  - job_name: headrace
    scrape_interval: 15s
    scheme: {scheme}
    metrics_path: /metrics
{login}    static_configs:
      - targets:
{targets}
rule_files:
  - headrace-alerts.yml   # headrace generate alerts
"""


@leaf(GeneratedRow, Shape.ONE, http=True)
@click.option("--interval", help="How often, as Prometheus writes it.  [15s]", default="15s")
def command(run: Invocation, interval: str) -> None:
    """Write the part of a Prometheus configuration that reads the brokers. All brokers of the cluster that answers."""
    brokers = run.http.ask("GET", "/api/v1/cluster")["brokers"]
    login = ""
    if run.profile.user:
        login += f"    basic_auth:\n      username: {run.profile.user}\n      password_file: {run.profile.password_file or 'PASSWORD_FILE'}\n"
    if run.profile.tls_ca:
        login += f"    tls_config:\n      ca_file: {run.profile.tls_ca}\n"
    text = SCRAPE.format(
        scheme="https" if run.profile.tls_ca else "http",
        login=login,
        targets="\n".join(f'          - "{broker["http"]}"' for broker in brokers),
    )
    show(run, "prometheus.yml", text.replace("15s", interval))
