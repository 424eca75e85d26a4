"""Command: the context `local`, which a server keeps for whoever starts one on their machine.

Only where nobody has arranged anything else: the first context there is, in use at once; from then on it follows its server.
One that is started in a directory of its own (--data-dir) or in memory is somebody's experiment, and leaves no trace.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.cli.contexts import LOCAL, Context, Contexts
from headrace.cli.failure import Failure
from headrace.cli.profile import CONTEXT_VARIABLE, profile_layers
from headrace.node.settings import Settings


def keep_local(settings: Settings, bootstrap: str, url: str) -> bool:
    """Whether commands without an address go to this server from now on. Never a reason not to start."""
    directory = settings.directory().absolute()
    if settings.ephemeral or directory != Settings().directory().absolute():
        return False
    try:
        return _kept(Contexts(), _context(settings, str(directory), bootstrap, url))
    except (OSError, Failure):
        return False  # a home that can't be written, or files that somebody broke: theirs to mend


def _kept(contexts: Contexts, context: Context) -> bool:
    known = contexts.find(LOCAL)
    if known is None:
        if contexts.names() or os.environ.get(CONTEXT_VARIABLE) or _is_said_elsewhere():
            return False
        contexts.keep(LOCAL, context)
        contexts.use(LOCAL)
    elif known.kept_by != context.kept_by:
        return False
    elif known != context:
        contexts.keep(LOCAL, context)
    return contexts.in_use == LOCAL and not os.environ.get(CONTEXT_VARIABLE) and not _is_said_elsewhere()


def _is_said_elsewhere() -> bool:
    """By a settings file or a variable."""
    origins = profile_layers({}).origins
    return any(
        not origins.get(name, f"context {LOCAL}").startswith(f"context {LOCAL}")
        for name in ("bootstrap", "url")
    )


def _context(settings: Settings, directory: str, bootstrap: str, url: str) -> Context:
    if not settings.secure:
        return Context(bootstrap=bootstrap, url=url, kept_by=directory)
    from headrace.cli.secure_start import secure_files
    from headrace.security.founding import ADMIN

    files = secure_files(settings)
    return Context(
        bootstrap=bootstrap,
        url=url,
        user=ADMIN,
        password_file=str(Path(files.password).absolute()),
        tls_ca=str(Path(files.authority.certificate).absolute()),
        kept_by=directory,
    )
