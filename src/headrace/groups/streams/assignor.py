"""Machine: the sticky task assignor: everybody has equally many tasks within one, and tasks stay where their state is.

Active tasks first: they stay, or go to who has a copy of their state as a standby, or to who has least. Then the standbys of
stateful tasks, never twice in one process. With too few processes there are fewer standbys.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from headrace.groups.streams.members import NOTHING, Role, Task, Tasks
from headrace.groups.streams.topology import ConfiguredTopology


def assign_sticky(
    processes: Mapping[str, str], previous: Mapping[str, Tasks], configured: ConfiguredTopology, standbys: int
) -> dict[str, Tasks]:
    """`processes` maps member ids to process ids."""
    if not configured.is_ready or not processes:
        return dict.fromkeys(processes, NOTHING)
    board = _Board(processes, previous)
    tasks = [(sub, number) for sub, count in configured.tasks.items() for number in range(count)]
    board.place_active(tasks)
    if standbys:
        stateful = configured.stateful
        board.place_standbys([task for task in tasks if task[0] in stateful], standbys)
    return {member_id: frozenset(found) for member_id, found in board.result.items()}


class _Board:
    def __init__(self, processes: Mapping[str, str], previous: Mapping[str, Tasks]) -> None:
        self.processes = processes
        self.result: dict[str, set[Task]] = {member_id: set() for member_id in sorted(processes)}
        self.placed: dict[tuple[str, int], set[str]] = {}
        """The processes that have each task."""
        self.loads = dict.fromkeys(processes.values(), 0)
        self.had: dict[Role, dict[tuple[str, int], list[str]]] = {role: {} for role in Role}
        for member_id in self.result:
            for role, sub, number in previous.get(member_id, NOTHING):
                self.had[role].setdefault((sub, number), []).append(member_id)

    def place_active(self, tasks: list[tuple[str, int]]) -> None:
        share, extra = divmod(len(tasks), len(self.result))

        def keep(left: list[tuple[str, int]], role: Role) -> list[tuple[str, int]]:
            nonlocal extra
            homeless = []
            for task in left:
                candidates = self.had[role].get(task, ())
                member_id = min(candidates, key=lambda who: len(self.result[who]), default=None)
                if member_id is None or len(self.result[member_id]) >= share + (extra > 0):
                    homeless.append(task)
                    continue
                self._put(member_id, Role.ACTIVE, task)
                extra -= len(self.result[member_id]) > share
            return homeless

        # By partition first, so that who has to give some up gives some of each subtopology.
        by_partition = sorted(tasks, key=lambda task: (task[1], task[0]))
        homeless = keep(keep(by_partition, Role.ACTIVE), Role.STANDBY)
        heap = self._by_load()
        for task in sorted(homeless):
            load, _, member_id = heappop(heap)
            self._put(member_id, Role.ACTIVE, task)
            heappush(heap, (load + 1, self.loads[self.processes[member_id]], member_id))

    def place_standbys(self, tasks: list[tuple[str, int]], standbys: int) -> None:
        total = sum(len(found) for found in self.result.values()) + len(tasks) * standbys
        most = -(-total // len(self.result))
        wanting = dict.fromkeys(tasks, standbys)
        for task in tasks:
            for role in (Role.STANDBY, Role.ACTIVE):
                for member_id in self.had[role].get(task, ()):
                    if (
                        wanting[task]
                        and self._may_have(member_id, task)
                        and len(self.result[member_id]) < most
                    ):
                        self._put(member_id, Role.STANDBY, task)
                        wanting[task] -= 1
        heap = self._by_load()
        for task, number in wanting.items():
            for _ in range(number):
                if not self._put_where_least(heap, task):
                    break

    def _put_where_least(self, heap: list[tuple[int, int, str]], task: tuple[str, int]) -> bool:
        if len(self.placed[task]) == len(self.loads):
            return False
        passed = []
        found = False
        while not found:
            load, _, member_id = heappop(heap)
            found = self._may_have(member_id, task)
            if found:
                self._put(member_id, Role.STANDBY, task)
                load += 1
            passed.append((load, self.loads[self.processes[member_id]], member_id))
        for entry in passed:
            heappush(heap, entry)
        return True

    def _by_load(self) -> list[tuple[int, int, str]]:
        """A heap of the members: who has fewest tasks first, then whose process has."""
        heap = [(len(found), self.loads[self.processes[who]], who) for who, found in self.result.items()]
        heapify(heap)
        return heap

    def _may_have(self, member_id: str, task: tuple[str, int]) -> bool:
        return self.processes[member_id] not in self.placed[task]

    def _put(self, member_id: str, role: Role, task: tuple[str, int]) -> None:
        process_id = self.processes[member_id]
        self.result[member_id].add(Task(role, *task))
        self.placed.setdefault(task, set()).add(process_id)
        self.loads[process_id] += 1
