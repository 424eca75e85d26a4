"""Command: `headrace generate client`."""

from __future__ import annotations

import click

from headrace.cli.client_programs import PROGRAMS, Ways
from headrace.cli.completing import complete_topics
from headrace.cli.generated import GeneratedRow, show
from headrace.cli.http_address import addressed
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


@leaf(GeneratedRow, Shape.ONE, http=True)
@click.argument("language", type=click.Choice(list(PROGRAMS)))
@click.option(
    "--topic",
    default="hello",
    show_default=True,
    shell_complete=complete_topics,
    help="Topic or queue of the program.",
)
def command(run: Invocation, language: str, topic: str) -> None:
    """Write a first program that sends and receives, with the addresses of your broker.

    sdk and python (confluent-kafka), javascript (kafkajs), java (kafka-clients), go (franz-go), boto3, and curl. No password is written: programs take it from the environment.
    """
    profile = addressed(run.profile)
    program = PROGRAMS[language]
    show(
        run,
        program.file,
        program.text(Ways(profile.bootstrap, profile.url, topic, profile.user, profile.tls_ca)),
    )
