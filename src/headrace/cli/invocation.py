"""Command: one run of one command: what the standard flags said, and the ways to speak to the person.

Made for every run, `--version` too, so what it needs is imported where it is needed.
"""

from __future__ import annotations

import os
import shutil
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failure import Exit, Failure

if TYPE_CHECKING:
    from headrace.cli.broker_link import BrokerLink
    from headrace.cli.http_link import HttpLink
    from headrace.cli.output import Output
    from headrace.cli.profile import Profile


class Invocation:
    """The object of the click context. Filled by the callbacks of the standard options."""

    def __init__(self) -> None:
        self.flags: dict[str, Any] = {}
        """Given flags of the profile: bootstrap, timeout, output."""
        self.quiet = False
        self.verbosity = 0
        self.no_colour = False
        self.assume_yes = False
        self.no_progress = False
        self.no_input = False

    @cached_property
    def profile(self) -> Profile:
        from headrace.cli.profile import load_profile

        return load_profile(self.flags)

    @cached_property
    def output(self) -> Output:
        from headrace.cli.output import Format, Output

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return Output(Format(self.profile.output), colour=self.colours(sys.stdout), width=width)

    @cached_property
    def link(self) -> BrokerLink:
        from headrace.cli.broker_link import BrokerLink

        return BrokerLink(self.profile, verbose=self.verbosity > 0)

    @cached_property
    def http(self) -> HttpLink:
        from headrace.cli.http_link import HttpLink

        return HttpLink(self.profile)

    def colours(self, stream: Any) -> bool:
        """https://no-color.org, then FORCE_COLOR, then CLICOLOR, then whether somebody looks."""
        if self.no_colour or os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return os.environ.get("CLICOLOR", "1") != "0" and bool(stream.isatty())

    @property
    def interactive(self) -> bool:
        return not self.no_input and sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def shows_progress(self) -> bool:
        return sys.stderr.isatty() and not (self.no_progress or self.quiet)

    # -- speaking ----------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Chatter, for people only: stderr, and not when -q or a machine format was asked for."""
        if not self.quiet and self.output.for_people:
            click.echo(_clean(text), err=True)

    def done(self, text: str) -> None:
        """The one line that says what was done."""
        if not self.quiet and self.output.for_people:
            mark = "✓ " if self.colours(sys.stderr) else ""
            click.echo(f"{click.style(mark, fg='green') if mark else ''}{_clean(text)}", err=True)

    def warn(self, text: str) -> None:
        """Only when the thing was done all the same."""
        label = click.style("warning:", fg="yellow") if self.colours(sys.stderr) else "warning:"
        click.echo(f"{label} {_clean(text)}", err=True)

    def confirm(self, action: str) -> None:
        """Destructive verbs ask a person, and refuse without one unless --yes was given. `action`: `delete orders`."""
        if self.assume_yes:
            return
        if not self.interactive:
            raise Failure(
                Exit.USAGE,
                f"will not {action}: nobody is here to ask",
                "say so with --yes, or look first with --dry-run",
                code="UNCONFIRMED",
            )
        if not click.confirm(f"{_clean(action[:1].upper() + action[1:])}?", default=False, err=True):
            raise Failure(Exit.FAILED, "nothing was changed", code="DECLINED")

    def explain(self, failure: Failure) -> None:
        """What went wrong, on stderr: a problem document for programs, words for people."""
        if self.wants_json:
            from headrace.cli.output import encode

            problem = {
                "schema": "headrace.error/v1",
                "code": failure.code,
                "detail": failure.what,
                "hint": failure.hint,
                "exit_code": int(failure.exit),
            }
            click.echo(encode(problem), err=True)
            return
        label = click.style("error:", fg="red", bold=True) if self.colours(sys.stderr) else "error:"
        # Some say where with lines of their own (a filter with its caret); none of them can move the cursor.
        what = "\n".join(_clean(line) for line in failure.what.split("\n"))
        click.echo(f"{label} {what}", err=True)
        for line in failure.hint.splitlines():
            click.echo(f"  hint: {_clean(line)}", err=True)

    @property
    def wants_json(self) -> bool:
        asked = self.flags.get("output") or os.environ.get("HEADRACE_OUTPUT") or ""
        return asked in ("json", "jsonl")


def _clean(text: str) -> str:
    """F57: names and errors come from others."""
    from headrace.cli.output import printable

    return printable(text)
