from __future__ import annotations

from headrace.log.epochs import EpochEnd, LeaderEpochs


def _epochs(*pairs: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for pair in pairs:
        assert epochs.assign(*pair)
    return epochs


def test_r22_epoch_end_table() -> None:
    epochs = _epochs((2, 0), (4, 10), (7, 25))
    for asked, answer in {
        2: EpochEnd(2, 10),
        3: EpochEnd(2, 10),  # never known here: the largest below, and where it ended
        4: EpochEnd(4, 25),
        6: EpochEnd(4, 25),
        7: EpochEnd(7, 40),  # the latest ends at the log's end
        9: EpochEnd(7, 40),
        1: EpochEnd(1, 0),  # older than all: its batches are below our start
        -1: EpochEnd(-1, -1),
    }.items():
        assert epochs.epoch_end(asked, 40) == answer, asked
    assert LeaderEpochs().epoch_end(3, 40) == EpochEnd(-1, -1)


def test_assign_only_goes_up() -> None:
    epochs = _epochs((2, 0), (4, 10))
    assert not epochs.assign(4, 12)
    assert not epochs.assign(3, 12)
    assert not epochs.assign(-1, 12)
    assert epochs.latest == 4


def test_kip279_an_epoch_that_wrote_nothing_gives_way() -> None:
    epochs = _epochs((2, 0), (4, 10), (5, 10))
    assert epochs.entries == [(2, 0), (5, 10)]
    assert epochs.epoch_end(4, 20) == EpochEnd(2, 10)


def test_epoch_at() -> None:
    epochs = _epochs((2, 5), (4, 10))
    assert [epochs.epoch_at(offset) for offset in (0, 5, 9, 10, 99)] == [-1, 2, 2, 4, 4]


def test_r23_truncation_from_both_ends() -> None:
    epochs = _epochs((2, 0), (4, 10), (7, 25))
    epochs.truncate_end(25)
    assert epochs.entries == [(2, 0), (4, 10)]
    epochs.truncate_start(15)
    assert epochs.entries == [(4, 15)]
    epochs.truncate_start(3)
    assert epochs.entries == [(4, 15)]
    epochs.clear()
    assert epochs.latest == -1
