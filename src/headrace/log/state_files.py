"""Machine: the state and epoch files of a log: what they hold, and the write that may be under way.

Invariant: writes of the state file do not overtake each other. While a driver writes a checkpoint nothing here writes
the file itself (`busy`); what needs it written first (deletion, truncation, swaps) waits or is refused.
"""

from __future__ import annotations

from headrace.core.ports import FileSystem
from headrace.log.checkpoints import LogState, encode_state
from headrace.log.config import HOUR_MS
from headrace.log.epochs import LeaderEpochs
from headrace.log.names import EPOCHS_FILE, STATE_FILE
from headrace.log.results import Checkpoint, PendingFile


class StateFiles:
    __slots__ = ("_directory", "_epochs", "_fs", "busy", "state")

    def __init__(self, fs: FileSystem, directory: str, state: LogState, epochs: LeaderEpochs) -> None:
        self._fs = fs
        self._directory = directory
        self._epochs = epochs
        self.state = state
        """What the state file holds."""
        self.busy = False

    def begin(self, state: LogState) -> Checkpoint | None:
        if self.busy or not (self._differs(state) or self._epochs.dirty):
            return None
        files = [PendingFile(f"{self._directory}/{STATE_FILE}", encode_state(state))]
        if self._epochs.dirty:
            files.insert(0, PendingFile(f"{self._directory}/{EPOCHS_FILE}", self._epochs.encode()))
            self._epochs.dirty = False
        self.busy = True
        return Checkpoint(tuple(files), state)

    def done(self, checkpoint: Checkpoint) -> None:
        self.state = checkpoint.state
        self.busy = False

    def failed(self) -> None:
        self._epochs.dirty = True
        self.busy = False

    def write(self, state: LogState) -> None:
        """At once, and for good."""
        assert not self.busy, "a checkpoint is under way"
        checkpoint = self.begin(state)
        if checkpoint is None:
            return
        try:
            for file in checkpoint.files:
                self._fs.write_file(file.path, file.data)
        except OSError:
            self.failed()
            raise
        self.done(checkpoint)

    def write_epochs(self) -> None:
        self._fs.write_file(f"{self._directory}/{EPOCHS_FILE}", self._epochs.encode())
        self._epochs.dirty = False

    def _differs(self, state: LogState) -> bool:
        # An idle log is not written again and again because a clock went on.
        clock_moved = abs(state.clock_ms - self.state.clock_ms) >= HOUR_MS
        return clock_moved or state._replace(clock_ms=0) != self.state._replace(clock_ms=0)
