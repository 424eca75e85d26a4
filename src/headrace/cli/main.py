"""Command: `headrace`: the table of its nouns, and the one place where failures become words and exit codes."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Any

import click

from headrace import __version__
from headrace.cli.failure import Exit, Failure
from headrace.cli.lazy import LazyGroup
from headrace.core.compiled import how_it_runs

NOUNS = {
    "serve": "Start a broker.",
    "start": "Start a broker in the background.",
    "stop": "Stop the broker that runs in the background.",
    "status": "Say whether the broker in the background runs, and is ready.",
    "topic": "Create, change, write and read topics.",
    "view": "Filtered, read-only topics that any Kafka client can consume.",
    "group": "Look at consumer groups and move them.",
    "queue": "Create queues; send, receive, look at and acknowledge messages.",
    "dlq": "Look at dead letters, edit them, send them back.",
    "schedule": "Look at, move and cancel messages that wait; send by the calendar.",
    "subscription": "Named queues over topics, each with everything.",
    "webhook": "Push queues to HTTP endpoints, signed, with retries.",
    "schema": "Register schemas of messages, look at them, hold one against another.",
    "login": "Log in, and stay logged in.",
    "logout": "Forget who you are there, and end the token.",
    "user": "Make users, change their passwords, shut them out.",
    "acl": "Give and take rights, and find out why something is denied.",
    "security": "Turn authentication and rights on, look at them, turn them off.",
    "tenant": "Parts of a cluster that belong to somebody: a prefix, its rights, a quota, a token.",
    "quota": "Limit what users and clients use.",
    "token": "Tokens for programs that use HTTP.",
    "key": "Access keys for SQS: what boto3 and the AWS command line sign with.",
    "cert": "Make certificates for brokers and clients, look at them, renew them.",
    "cluster": "Look at the brokers, drain one, spread the load.",
    "pipeline": "Archive, replay, transform, aggregate, mirror and audit topics with Spark.",
    "sql": "Ask with SQL over whole topics.",
    "bench": "Measure throughput, latency and the broker's CPU.",
    "top": "Show what flows now: brokers, topics, groups, queues.",
    "open": "Open the web console, logged in.",
    "doctor": "Check this machine and the broker, with a hint for whatever is wrong.",
    "context": "Named ways to a broker: where it is, who you are, whom you trust.",
    "config": "Show the settings and where each comes from.",
    "debug": "Look inside a data directory.",
    "generate": "Write files for systemd, containers, Prometheus and Grafana, and first programs for clients, to stdout.",
    "completion": "Print the completion script of a shell.",
    "cheat": "Show the commands that people need most, on one page.",
    "version": "Show the version of this program, and what it runs on.",
}
"""A new noun is one line here and a module (or a package with VERBS) of that name."""

HELP = """One durable log with many doors: a message queue that speaks Kafka.

Start a broker with `headrace serve`, then try `headrace topic produce hello`."""


class Root(LazyGroup):
    def main(self, *args: Any, **extra: Any) -> Any:
        """Runs a command and ends the process with one of the codes of cli.failure, never with a traceback."""
        from headrace.cli.invocation import Invocation

        run = Invocation()
        try:
            result = super().main(*args, **{**extra, "standalone_mode": False, "obj": run})
            code = result if isinstance(result, int) else Exit.OK
            sys.stdout.flush()
        except Failure as failure:
            run.explain(failure)
            code = failure.exit
        except click.exceptions.NoArgsIsHelpError as problem:
            problem.show()
            code = Exit.USAGE
        except click.ClickException as problem:
            run.explain(_usage(problem))
            code = Exit.USAGE
        except (KeyboardInterrupt, click.Abort):
            code = Exit.INTERRUPTED
        except (_SeenEnough, BrokenPipeError):
            _let_go_of_stdout()
            code = Exit.OK
        except Exception as bug:
            code = Exit.INTERRUPTED if _was_interrupted(bug) else _unexpected(run, bug)
        sys.exit(int(code))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as end:
            raise _SeenEnough from end


class _SeenEnough(Exception):
    """Whoever read our output went away, as `head` does. Under another name, because click would exit with 1."""


def _was_interrupted(error: BaseException) -> bool:
    """A C extension that returns in spite of Ctrl+C is told off by Python: SystemError, caused by KeyboardInterrupt."""
    return isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt)


def _let_go_of_stdout() -> None:
    """Python flushes stdout at exit, which would fail once more, and loudly."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(problem: click.ClickException) -> Failure:
    ctx = getattr(problem, "ctx", None)
    hint = f"{ctx.command_path} --help" if ctx is not None else ""
    message = re.sub(r"\s*\n\t", " ", problem.format_message().rstrip("."))
    if isinstance(problem, click.exceptions.NoSuchOption) and problem.possibilities:
        message = f'there is no option "{problem.option_name}"; did you mean "{problem.possibilities[0]}"?'
    return Failure(Exit.USAGE, message[:1].lower() + message[1:], hint)


def _unexpected(run: Any, error: Exception) -> Exit:
    """What no command expected: a broker's refusal, an I/O error, or a bug of ours."""
    from headrace.cli.unexpected import failure_from

    failure = failure_from(error)
    run.explain(failure)
    if run.verbosity:
        import traceback

        traceback.print_exception(error)
    return failure.exit


@click.group(
    cls=Root,
    package="headrace.cli",
    table=NOUNS,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("-v", "--verbose", "verbosity", count=True, help="Say more, with tracebacks.")
@click.option("--context", metavar="NAME", help="The way to the broker: headrace context list.")
@click.version_option(__version__, "-V", "--version", message=f"headrace %(version)s ({how_it_runs()})")
@click.pass_obj
def main(run: Any, verbosity: int, context: str | None) -> None:
    run.verbosity = verbosity
    if context:
        run.flags["context"] = context
