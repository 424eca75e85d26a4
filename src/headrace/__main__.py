"""Command: `python -m headrace` is `headrace`."""

from headrace.cli.main import main

main(prog_name="headrace")
