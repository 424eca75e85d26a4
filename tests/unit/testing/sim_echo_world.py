"""A small world for determinism tests: an echo server that journals to disk, clients, and every kind of fault."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.testing.sim_node import SimNode, SimRuntime
from headrace.testing.simulation import Simulation


async def echo_program(node: SimNode, runtime: SimRuntime) -> None:
    """Answers a line only once it is synced: what a client was told survives everything."""
    runtime.fs.make_dirs("/data")
    journal = runtime.fs.open("/data/journal", create=True)
    runtime.fs.sync_dir("/data")
    # The tail that a power cut tore is cut off at the last whole line.
    kept = journal.read(0, journal.size)
    journal.truncate(kept.rfind(b"\n") + 1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                if not line.endswith(b"\n"):
                    break
                journal.append([line])
                await runtime.run_blocking(journal.sync)
                writer.write(line)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "0.0.0.0", 9000)
    node.service = server
    async with server:
        await server.serve_forever()


async def call(host: str, line: bytes) -> bool:
    """True when the line was echoed, i.e. acknowledged."""
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(host, 9000)
            try:
                writer.write(line)
                return await reader.readline() == line
            finally:
                writer.close()
    except OSError:
        return False


class Outcome:
    def __init__(self, simulation: Simulation, acknowledged: list[bytes], journal: bytes) -> None:
        self.trace_hash = simulation.trace_hash
        self.steps = simulation.loop.step_count
        self.acknowledged = acknowledged
        self.journal = journal
        self.trace = simulation.loop.trace_lines


def run_echo_world(seed: int, *, keep_trace: bool = False, lines: int = 40) -> Outcome:
    simulation = Simulation(seed, keep_trace=keep_trace)
    server = simulation.node("server", echo_program)
    acknowledged: list[bytes] = []

    async def client(node: SimNode, runtime: SimRuntime) -> None:
        for number in range(lines):
            line = b"%s-%d-%s\n" % (node.name.encode(), number, runtime.random_bytes(3).hex().encode())
            if await call("server", line):
                acknowledged.append(line)
            await asyncio.sleep(0.05)

    async def scenario(simulation: Simulation) -> None:
        server.start()
        clients: list[asyncio.Task[Any]] = [simulation.node(name, client).start() for name in ("c1", "c2")]
        dice = simulation.dice.fork("faults")
        network = simulation.network
        while not all(task.done() for task in clients):
            await asyncio.sleep(dice.exponential(0.3))
            fault = dice.pick(
                ("kill", "power", "pause", "cut", "one way", "reset", "slow", "half open", "none")
            )
            if fault == "kill":
                server.kill()
            elif fault == "power":
                server.cut_power()
            elif fault == "pause":
                server.pause()
            elif fault == "cut":
                network.cut("server", dice.pick(("c1", "c2")))
            elif fault == "one way":
                network.cut("server", "c1", both_ways=False)
            elif fault == "reset":
                network.reset("c1", "server")
            elif fault == "slow":
                network.slow("c1", "server", latency_s=(0.1, 0.5), bytes_per_s=1000)
            elif fault == "half open":
                network.half_open("server", "c2")
            await asyncio.sleep(dice.exponential(0.2))
            network.heal()
            server.resume()
            if not server.is_running:
                server.start()

    simulation.run(scenario)
    return Outcome(simulation, acknowledged, bytes(server.disk.mount().read_file("/data/journal")))
