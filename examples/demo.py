"""A broker's life in half a minute: start, publish and consume live, kill -9 half-way, recover, check, stop.

    make demo          or    .venv/bin/python examples/demo.py

It needs nothing but the package: the broker is a child process on free ports, with its data in a temporary directory.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

import demo_spark
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from headrace import Client, HeadraceError
from headrace.testing.broker_process import BrokerProcess

MESSAGES = int(os.environ.get("HEADRACE_DEMO_MESSAGES", "100000"))
PARTITIONS = 6
CUSTOMERS = 1_000
KILL_AT = MESSAGES // 2
PATIENCE_S = 25.0

WINDOW = 2_000
"""Messages on their way at once: enough to keep the broker busy, few enough for latencies that mean something."""

TICK_S = 0.05
BARS = " ▁▂▃▄▅▆▇█"

console = Console(highlight=False, soft_wrap=True)


def say(text: str) -> None:
    console.print(text)


class Order(NamedTuple):
    """As a worker of the group received it."""

    number: int
    customer: int
    latency_ms: float


class Ledger:
    """What was published and acknowledged, and what the group received."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """Order number -> (partition, offset)."""
        self.received: dict[tuple[int, int], Order] = {}
        """(partition, offset) -> what was there."""
        self.redelivered = 0
        self.ack_ms: list[float] = []
        self.acks_per_tick: list[int] = []
        self.lag_per_tick: list[int] = []
        self.complete = threading.Event()
        self._window = threading.BoundedSemaphore(WINDOW)

    def publish(self, client: Client, number: int) -> None:
        self._window.acquire()
        customer = number % CUSTOMERS
        started = time.perf_counter()
        order = {"order": number, "customer": customer, "cents": number * 37 % 10_000, "at": started}
        delivery = client.publish("orders", order, key=f"customer-{customer}")

        def answered(done: Any) -> None:
            self._window.release()
            if done.exception() is None:
                self.acknowledged[number] = done.result()
                self.ack_ms.append((time.perf_counter() - started) * 1000)

        delivery.add_done_callback(answered)

    def receive(self, message: Any) -> None:
        order = message.json()
        place = (message.partition, message.offset)
        if place in self.received:
            self.redelivered += 1  # at-least-once: after a crash a worker may be handed something again
            return
        latency_ms = (time.perf_counter() - order["at"]) * 1000
        self.received[place] = Order(order["order"], order["customer"], latency_ms)
        if len(self.received) >= MESSAGES:
            self.complete.set()

    def sample(self, bar: Progress, task: Any, finished: threading.Event) -> None:
        before = 0
        while not finished.wait(TICK_S):
            now = len(self.acknowledged)
            self.acks_per_tick.append(now - before)
            self.lag_per_tick.append(max(0, now - len(self.received)))
            before = now
            bar.update(task, completed=now)


class Worker(threading.Thread):
    """One member of the group "billing"."""

    def __init__(self, client: Client, name: str, ledger: Ledger) -> None:
        super().__init__(name=name, daemon=True)
        self.count = 0
        self._ledger = ledger
        self.subscription = client.subscribe("orders", group="billing", create=True)

    def run(self) -> None:
        for message in self.subscription:
            self._ledger.receive(message)
            self.count += 1
            if self._ledger.complete.is_set():
                message.ack()
                break


def start_workers(client: Client, ledger: Ledger) -> list[Worker]:
    """Both are in the group, and every partition has its owner, before the first order is published."""
    workers = [Worker(client, f"worker-{number}", ledger) for number in (1, 2)]
    for worker in workers:
        worker.start()
    began = time.perf_counter()
    pause = threading.Event()
    while time.perf_counter() - began < PATIENCE_S:
        owned = [worker.subscription.partitions for worker in workers]
        if all(owned) and sum(map(len, owned)) == PARTITIONS:
            break
        pause.wait(TICK_S)
    for worker in workers:
        numbers = ", ".join(str(number) for _, number in sorted(worker.subscription.partitions))
        say(f"  {worker.name} has partitions {numbers}")
    return workers


def publish_all(client: Client, broker: BrokerProcess, ledger: Ledger) -> float:
    """Every order; the broker is killed with -9 in the middle and started again. Ends when the group has them all."""
    finished = threading.Event()
    columns = (TextColumn("  acknowledged"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=MESSAGES)
        sampler = threading.Thread(target=ledger.sample, args=(bar, task, finished), daemon=True)
        sampler.start()
        started = time.perf_counter()
        for number in range(MESSAGES):
            ledger.publish(client, number)
            if number == KILL_AT:
                kill_and_restart(broker, ledger)
        client.flush()
        seconds = time.perf_counter() - started
        ledger.complete.wait(PATIENCE_S)
        finished.set()
        sampler.join()
    return seconds


def kill_and_restart(broker: BrokerProcess, ledger: Ledger) -> None:
    broker.kill()
    acknowledged = len(ledger.acknowledged)
    began = time.perf_counter()
    broker.start()
    say(
        f"  [red]kill -9[/] after {acknowledged:,} acknowledgements, "
        f"{KILL_AT + 1 - acknowledged:,} messages on their way; back in {time.perf_counter() - began:.2f} s"
    )


# -- what it looked like ---------------------------------------------------------------------------------------


def sparkline(values: list[int], width: int = 44) -> str:
    """The highest value of each stretch, so that a short gap in the middle of work still shows as one."""
    if len(values) > width:
        cuts = [round(index * len(values) / width) for index in range(width + 1)]
        values = [max(values[begin:end]) for begin, end in pairwise(cuts)]
    top = max(values, default=0) or 1
    return "".join(BARS[-(-value * (len(BARS) - 1) // top)] for value in values)


def histogram(latencies_ms: list[float]) -> Table:
    bounds = [2, 5, 10, 20, 50, 100, 200, 500, float("inf")]
    counts = [0] * len(bounds)
    for latency in latencies_ms:
        counts[next(index for index, bound in enumerate(bounds) if latency <= bound)] += 1
    table = Table.grid(padding=(0, 1))
    top = max(counts) or 1
    for bound, count in zip(bounds, counts, strict=True):
        label = "more" if bound == float("inf") else f"≤ {bound:g} ms"
        bar = "█" * round(8 * count / top) or ("▏" if count else "")
        table.add_row(Text(label, justify="right"), Text(bar.ljust(8), style="cyan"), f"{count:>6,}")
    return table


def partition_table(ledger: Ledger) -> Table:
    acknowledged = Counter(partition for partition, _ in ledger.acknowledged.values())
    received = Counter(partition for partition, _ in ledger.received)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("partition", "stored", "received"):
        table.add_column(title, justify="right")
    for partition in sorted(acknowledged):
        table.add_row(str(partition), f"{acknowledged[partition]:,}", f"{received[partition]:,}")
    table.add_row("all", f"{acknowledged.total():,}", f"{received.total():,}", style="bold")
    return table


class Promise(NamedTuple):
    text: str
    kept: bool
    detail: str


def promises(ledger: Ledger) -> list[Promise]:
    """Each is checked against every message."""
    stored = Counter(order.number for order in ledger.received.values())
    lost = len(ledger.acknowledged.keys() - stored.keys())
    twice = sum(1 for count in stored.values() if count > 1)
    moved = sum(
        1 for place, order in ledger.received.items() if ledger.acknowledged.get(order.number) != place
    )
    by_customer: dict[int, list[int]] = defaultdict(list)
    for _, order in sorted(ledger.received.items()):
        by_customer[order.customer].append(order.number)
    unordered = sum(1 for numbers in by_customer.values() if numbers != sorted(numbers))
    return [
        Promise("everything was acknowledged", len(ledger.acknowledged) == MESSAGES, f"{MESSAGES:,} orders"),
        Promise("nothing acknowledged was lost by kill -9", not lost, f"{lost} lost"),
        Promise("nothing was stored twice by the retries", not twice, f"{twice} twice"),
        Promise("each is where the broker said it is", not moved, f"{moved} elsewhere"),
        Promise("the order of each customer's orders held", not unordered, f"{unordered} of {CUSTOMERS:,} broken"),
    ]  # fmt: skip


def report(ledger: Ledger, workers: list[Worker], seconds: float) -> bool:
    shares = ", ".join(f"{worker.name} {worker.count:,}" for worker in workers)
    say(
        f"  {MESSAGES:,} acknowledged in {seconds:.1f} s: {MESSAGES / seconds:,.0f} a second, the crash included"
    )
    say(f"  received by {shares}; {ledger.redelivered:,} of them again after the crash")
    say(f"  acks over time  [cyan]{sparkline(ledger.acks_per_tick)}[/]")
    say(f"  lag over time   [cyan]{sparkline(ledger.lag_per_tick)}[/]")
    end_to_end = [order.latency_ms for order in ledger.received.values()]
    panels = [
        Panel(histogram(ledger.ack_ms), title="until acknowledged", padding=0),
        Panel(histogram(end_to_end), title="until received", padding=0),
        Panel(partition_table(ledger), title="orders", padding=0),
    ]
    console.print(Columns(panels))
    checked = promises(ledger)
    for promise in checked:
        mark = "[green]✓[/]" if promise.kept else "[red]✗[/]"
        say(f"  {mark} {promise.text}  [dim]({promise.detail})[/]")
    return all(promise.kept for promise in checked)


def look_around(url: str) -> None:
    """A person who asked for it (KEEP=1) looks at the console for as long as they like."""
    if not os.environ.get("HEADRACE_DEMO_KEEP"):
        say(f"  The console was at {url}/; [bold]make demo KEEP=1[/] leaves it open.")
        return
    say(f"  Open until Ctrl+C: the console is at [bold]{url}/[/]")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        say("")


def main() -> int:
    began = time.perf_counter()
    # The group waits half a second for its second member, instead of being rebalanced when that one comes.
    broker = BrokerProcess(
        arguments=("--num-partitions", str(PARTITIONS), "--group-initial-rebalance-delay-ms", "500ms")
    )
    good = False
    shown: bool | None = None
    say("[bold]1  Start a broker[/]")
    try:
        broker.start()
        say(
            f"  ready in {time.perf_counter() - began:.2f} s: Kafka on {broker.bootstrap}, HTTP on {broker.url}"
        )
        # librdkafka would tell of the lost connection; that is our own doing here.
        with Client(broker.bootstrap, delivery="at-least-once", config={"log_level": 0}) as client:
            ledger = Ledger()
            say('[bold]2  Two workers join the group "billing"[/]')
            workers = start_workers(client, ledger)
            say(f"[bold]3  Publish {MESSAGES:,} orders while they work, and kill the broker half-way[/]")
            seconds = publish_all(client, broker, ledger)
            good = report(ledger, workers, seconds)
        say("[bold]4  A Spark pipeline over the orders[/]")
        shown = demo_spark.run(broker.bootstrap)
        good = good and shown is not False
        look_around(broker.url)
        stopping = time.perf_counter()
        code = broker.stop()
        say(f"[bold]5  Stop[/]\n  SIGTERM, exit code {code}, {time.perf_counter() - stopping:.2f} s")
        good = good and code == 0
    except HeadraceError as problem:
        say(f"[red]error:[/] {problem.detail}\n{broker.log()}")
    finally:
        broker.__exit__(None, None, None)
    words = "All promises kept" if good else "SOMETHING WENT WRONG"
    if good and shown is None:
        words = "All promises kept but one that was not shown: the Spark pipeline (see 4)"
    say(f"[bold]{words}[/], in {time.perf_counter() - began:.1f} s altogether.")
    say("Next:  [bold]headrace serve[/] in one terminal, [bold]headrace topic produce hello[/] in another.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
