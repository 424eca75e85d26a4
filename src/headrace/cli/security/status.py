"""Command: `headrace security status`."""

from __future__ import annotations

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.security_view import SECURITY, SecurityRow, security_row, show


@leaf(SecurityRow, Shape.ONE, http=True)
def command(run: Invocation) -> None:
    """Show the mode, and who would be refused."""
    row = security_row(run.http.ask("GET", SECURITY))
    run.output.one(row, lambda: show(row))
    found = run.http.ask("GET", f"{SECURITY}/denials")
    for each in found["brokers"]:
        if each["problem"]:
            run.note(f"broker {each['broker']} can't be asked: {each['problem']}")
        elif each["mode"] != row.mode:
            run.note(f"broker {each['broker']} is in mode {each['mode']} still")
    for each in found["nameless"][:10]:
        run.note(f"without a name: {each['host']} {each['client']} ({each['count']} times)")
    for each in found["denied"][:10]:
        run.note(
            f"denied: {each['principal']} {each['operation']} {each['resource']} {each['name']} ({each['count']} times)"
        )
