"""Command: what every leaf of the tree has in common: its standard flags and the shape of its output.

@leaf(TopicRow, Shape.ITEMS, broker=True)
@click.argument("names", nargs=-1)
def command(run: Invocation, names: tuple[str, ...]) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from headrace.cli.completing import complete_contexts
from headrace.cli.invocation import Invocation
from headrace.cli.output import FORMATS, Row, Shape
from headrace.cli.parameters import LONGEST_WAIT_MS, Duration


class Leaf(click.Command):
    """A command that prints rows of one kind. Tests hold the JSON schema of each against a golden file."""

    def __init__(self, *args: Any, row: type[Row], shape: Shape, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row
        self.shape = shape


def leaf(
    row: type[Row],
    shape: Shape,
    *,
    broker: bool = False,
    http: bool = False,
    confirms: bool = False,
    dry_run: bool = False,
    short_output: bool = True,
) -> Callable[[Callable[..., Any]], Leaf]:
    """`broker`: it talks to one; `http`: over HTTP. `confirms`: it destroys, so there is --yes. `short_output`: -o is not taken."""

    def decorate(function: Callable[..., Any]) -> Leaf:
        make = click.command(
            cls=Leaf, row=row, shape=shape, context_settings={"help_option_names": ["-h", "--help"]}
        )
        made: Leaf = make(click.pass_obj(function))
        if dry_run:
            made.params.append(
                click.Option(["--dry-run"], is_flag=True, help="Show what would be done, and do nothing.")
            )
        made.params += _standard_options(broker, confirms, short_output, http=http)
        return made

    return decorate


def _standard_options(
    broker: bool, confirms: bool, short_output: bool, *, http: bool = False
) -> list[click.Parameter]:
    options: list[click.Parameter] = []
    if confirms:
        options.append(_stored(["-y", "--yes"], "assume_yes", is_flag=True, help="Do not ask."))
    if broker:
        options += [
            _flag(
                ["-b", "--bootstrap"], "bootstrap", metavar="HOST:PORT", help="Kafka address of the broker."
            ),
        ]
    if http:
        options += [
            _flag(["-b", "--bootstrap"], "bootstrap", metavar="HOST:PORT", help="Kafka address of the broker; its HTTP address is learned."),
            _flag(["--url"], "url", metavar="URL", help="HTTP address of the broker."),
        ]  # fmt: skip
    if broker or http:
        options += [
            _flag(["--context"], "context", metavar="NAME", shell_complete=complete_contexts, help="The way to the broker: headrace context list."),
            _flag(["--timeout"], "timeout_ms", type=Duration(1, LONGEST_WAIT_MS), help="How long to wait for an answer, as in 5s."),
        ]  # fmt: skip
    return [
        *options,
        _flag(
            (["-o"] if short_output else []) + ["--output"],
            "output",
            type=click.Choice(FORMATS),
            help="How results are printed.",
        ),
        _flag(["--json"], "output", is_flag=True, flag_value="json", help="The same as --output json."),
        _stored(["--no-color"], "no_colour", is_flag=True, help="No colours (also NO_COLOR)."),
        _stored(["--no-input"], "no_input", is_flag=True, help="Never ask, not even on a terminal."),
        _stored(["--no-progress"], "no_progress", is_flag=True, help="No progress bars."),
        _stored(["-q", "--quiet"], "quiet", is_flag=True, help="Say less."),
        _stored(["-v", "--verbose"], "verbosity", count=True, help="Say more, with tracebacks."),
    ]


def _stored(names: list[str], attribute: str, **settings: Any) -> click.Option:
    """An option that becomes an attribute of the Invocation."""

    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            setattr(invocation(ctx), attribute, value)

    return click.Option(names, expose_value=False, callback=store, is_eager=True, **settings)


def _flag(names: list[str], key: str, **settings: Any) -> click.Option:
    """An option that is the strongest layer of a setting of the Profile."""

    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None:
            invocation(ctx).flags[key] = value

    return click.Option(names, expose_value=False, callback=store, is_eager=True, default=None, **settings)


def invocation(ctx: click.Context) -> Invocation:
    found = ctx.find_root().obj
    assert isinstance(found, Invocation)
    return found
