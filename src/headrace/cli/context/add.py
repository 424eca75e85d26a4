"""Command: `headrace context add`."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from headrace.cli.addresses import split_address
from headrace.cli.context_view import ContextRow, context_row, shown
from headrace.cli.contexts import Context, Contexts
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape


@leaf(ContextRow, Shape.ONE)
@click.argument("name")
@click.option(
    "-b", "--bootstrap", metavar="HOST:PORT", required=True, help="Kafka address, or several with commas."
)
@click.option(
    "--url", metavar="URL", default="", help="HTTP address; the broker is asked when it is left out."
)
@click.option("--user", default="", help="Who you are there.")
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False),
    help="A file with the password, readable by nobody else.",
)
@click.option("--tls-ca", type=click.Path(exists=True, dir_okay=False), help="Certificates to trust, PEM.")
@click.option("--use", is_flag=True, help="Use it from now on.")
@click.option("--replace", is_flag=True, help="One of that name may be there already.")
def command(
    run: Invocation,
    name: str,
    bootstrap: str,
    url: str,
    user: str,
    password_file: str | None,
    tls_ca: str | None,
    use: bool,
    replace: bool,
) -> None:
    """Add a context. The first one is used at once.

    The password is in a file of yours, or typed in and kept in a file that only you can read, or in HEADRACE_PASSWORD.
    """
    contexts = Contexts()
    if contexts.find(name) is not None and not replace:
        raise Failure(Exit.CONFLICT, f'there is a context called "{name}"', "--replace, or another name")
    for address in bootstrap.split(","):
        split_address(address.strip())
    for address in filter(None, url.split(",")):
        if urlsplit(address.strip()).scheme not in ("http", "https"):
            raise Failure(Exit.USAGE, f"{address} is not an HTTP address", "--url http://queue.example:9324")
    context = Context(
        bootstrap=bootstrap,
        url=url,
        user=user,
        password_file=str(Path(password_file).absolute()) if password_file else "",
        tls_ca=str(Path(tls_ca).absolute()) if tls_ca else "",
    )
    is_first = not contexts.names()
    contexts.keep(name, context)
    if user and not password_file:
        context = _with_typed_password(run, contexts, name, context)
    if use or is_first:
        contexts.use(name)
    row = context_row(name, context, contexts.in_use)
    run.output.one(row, lambda: shown(row))
    run.note(f"Try:  headrace cluster status{'' if row.in_use else f' --context {name}'}")


def _with_typed_password(run: Invocation, contexts: Contexts, name: str, context: Context) -> Context:
    """Nobody is asked where nobody sits: then HEADRACE_PASSWORD has to be there when it is used."""
    if not run.interactive or "HEADRACE_PASSWORD" in os.environ:
        return context
    import msgspec

    password = click.prompt(f"Password of {context.user}", hide_input=True, err=True)
    kept = msgspec.structs.replace(
        context, password_file=str(contexts.keep_secret(name, "password", password))
    )
    contexts.keep(name, kept)
    return kept
