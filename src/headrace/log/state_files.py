"""Machine: the state and epoch files of a log, and the write of the state that may be under way in a driver's pool.

A checkpoint is written by a pool while the log goes on; a truncation or deletion in the meantime has to write the
state itself, at once, and must not be overtaken by the older one. So states are numbered, and while a checkpoint is
under way the log writes to a second file. The higher number counts.

Invariant: what a restart finds is the state with the highest number that was completely written.
"""

from __future__ import annotations

from headrace.core.ports import FileSystem
from headrace.log.checkpoints import DamagedFile, LogState, decode_state, encode_state
from headrace.log.config import HOUR_MS
from headrace.log.epochs import LeaderEpochs
from headrace.log.names import EPOCHS_FILE, STATE_FILE, URGENT_STATE_FILE
from headrace.log.results import Checkpoint, PendingFile


class StateFiles:
    __slots__ = (
        "_directory",
        "_epochs",
        "_fs",
        "_is_doubtful",
        "_serial",
        "_under_way",
        "are_epochs_doubtful",
        "has_epochs_file",
        "has_state_file",
        "state",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        state: LogState,
        epochs: LeaderEpochs,
        *,
        are_there: bool = True,
    ) -> None:
        """`are_there`: on disk already, both of them."""
        self._fs = fs
        self._directory = directory
        self._epochs = epochs
        self.state = state
        """What a restart would find."""
        self._serial = state.serial
        self._under_way: Checkpoint | None = None
        self._is_doubtful = False
        """A write failed, and may have happened all the same: only another one makes sure of what a restart finds."""
        self.are_epochs_doubtful = False
        """The same of the epoch file."""
        self.has_epochs_file = self.has_state_file = are_there
        """Not in a log that is new (decision 0045)."""

    def begin(self, state: LogState) -> Checkpoint | None:
        if self._under_way is not None or not (self._is_doubtful or self._differs(state)):
            return None
        state = self._numbered(state)
        file = PendingFile(f"{self._directory}/{STATE_FILE}", encode_state(state))
        self._under_way = Checkpoint((file,), state)
        return self._under_way

    def end(self, checkpoint: Checkpoint, written: bool) -> None:
        assert checkpoint is self._under_way, "one checkpoint at a time"
        self._under_way = None
        if not written:
            self._is_doubtful = True
        elif checkpoint.state.serial > self.state.serial:
            self.state, self._is_doubtful = checkpoint.state, False
            self.has_state_file = True

    def write(self, state: LogState) -> None:
        """At once, and for good. Also when it only says again what an unfinished checkpoint is about to change."""
        if self._under_way is not None or self._is_doubtful or self._differs(state):
            state = self._numbered(state)
            name = STATE_FILE if self._under_way is None else URGENT_STATE_FILE
            self._is_doubtful = True
            self._fs.write_file(f"{self._directory}/{name}", encode_state(state))
            self.state, self._is_doubtful = state, False
            self.has_state_file = True

    def write_epochs(self) -> None:
        """Never part of a checkpoint: an epoch has to be on disk before the first batch that carries it."""
        self.are_epochs_doubtful = True
        self._fs.write_file(f"{self._directory}/{EPOCHS_FILE}", self._epochs.encode())
        self.are_epochs_doubtful = False
        self.has_epochs_file = True

    def _numbered(self, state: LogState) -> LogState:
        self._serial += 1
        return state._replace(serial=self._serial)

    def _differs(self, state: LogState) -> bool:
        # An idle log is not written again and again because a clock went on.
        clock_moved = abs(state.clock_ms - self.state.clock_ms) >= HOUR_MS
        same = self.state._replace(clock_ms=state.clock_ms, serial=state.serial)
        return clock_moved or state != same


def load_state(fs: FileSystem, directory: str) -> LogState | None:
    """The newest state; None when there is none. BadSeal when one can not be read: it may have been the newest."""
    newest: LogState | None = None
    for name in (STATE_FILE, URGENT_STATE_FILE):
        path = f"{directory}/{name}"
        if not fs.exists(path):
            continue
        try:
            state = decode_state(fs.read_file(path))
        except DamagedFile as error:
            raise DamagedFile(f"{name}: {error}") from None
        if newest is None or state.serial > newest.serial:
            newest = state
    return newest


def settle_state(fs: FileSystem, directory: str, state: LogState) -> None:
    """At the end of a load: one file, with the number that all later ones count from."""
    path, urgent = f"{directory}/{STATE_FILE}", f"{directory}/{URGENT_STATE_FILE}"
    data = encode_state(state)
    if not fs.exists(path) or fs.read_file(path) != data:
        fs.write_file(path, data)
    if fs.exists(urgent):
        fs.remove(urgent)
        fs.sync_dir(directory)
