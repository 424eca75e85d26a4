"""Command: `headrace generate systemd`."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from headrace.cli.failure import Exit
from headrace.cli.generated import GeneratedRow, show
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.profile import settings_failure
from headrace.cli.setting_options import flag_words, setting_options
from headrace.node.settings import SettingsError, load_settings

HOPELESS = (Exit.USAGE, Exit.DENIED, Exit.CONFLICT)
"""What starting again can't mend."""

UNIT = """\
[Unit]
Description=Headrace broker
Documentation=https://headrace.dev
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User={user}
StateDirectory=headrace
StateDirectoryMode=0700
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
RestartPreventExitStatus={hopeless}
# It hands over its partitions and syncs before it ends.
TimeoutStopSec=90
LimitNOFILE=65536
NoNewPrivileges=yes
PrivateTmp=yes
ProtectHome=yes
ProtectSystem=strict
ReadWritePaths={directory}

[Install]
WantedBy=multi-user.target
"""


@leaf(GeneratedRow, Shape.ONE)
@click.option("--user", default="headrace", show_default=True, help="Who runs it.")
@setting_options
def command(run: Invocation, user: str, **flags: Any) -> None:
    """Write a unit that runs a broker as a service. It takes the flags of serve, which go into the unit.

    \b
    headrace generate systemd --host 10.0.0.1 --secure | sudo tee /etc/systemd/system/headrace.service
    sudo useradd --system headrace; sudo systemctl enable --now headrace
    """
    flags = {
        "data_dir": "/var/lib/headrace",
        **{name: value for name, value in flags.items() if value is not None},
    }
    try:
        load_settings(flags)
    except SettingsError as error:
        raise settings_failure(error) from None
    program = shutil.which("headrace") or str(Path(sys.executable).with_name("headrace"))
    words = [_escaped(word) for word in (str(Path(program).absolute()), "serve", *flag_words(flags))]
    text = UNIT.format(
        user=user,
        command=" ".join(words),
        directory=flags["data_dir"],
        hopeless=" ".join(str(int(code)) for code in HOPELESS),
    )
    show(run, "headrace.service", text)


def _escaped(word: str) -> str:
    """systemd reads % and $ before it reads quotes."""
    return shlex.quote(word.replace("%", "%%").replace("$", "$$"))
