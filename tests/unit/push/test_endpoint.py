"""X22: requests to endpoints: resolve once, judge every address, connect there; no redirects, bounded answers, one deadline."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from headrace.push.addresses import parse_networks
from headrace.push.endpoint import EndpointClient, NoAnswer, NotSent
from headrace.push.target import TargetRules

LOOPBACK = TargetRules(allow_http=True, networks=parse_networks("127.0.0.0/8"), ports=None)
Answering = Callable[[bytes], Awaitable[bytes]]


@asynccontextmanager
async def server(
    answering: Answering, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, list[bytes]]]:
    requests: list[bytes] = []
    tasks: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                requests.append(head + await reader.readexactly(length))
                writer.write(await answering(head))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()  # from Python 3.12 on a server waits for it

    started = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield started.sockets[0].getsockname()[1], requests
    finally:
        started.close()
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        await started.wait_closed()


def answers(status: str, body: bytes = b"", extra: str = "") -> Answering:
    async def answering(head: bytes) -> bytes:
        return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body

    return answering


def resolving(*rounds: list[str]) -> tuple[Callable[[str, int], Awaitable[list[str]]], list[str]]:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return rounds[min(len(asked), len(rounds)) - 1]

    return resolve, asked


async def test_a_request_and_its_answer() -> None:
    async with server(answers("200 OK", b"fine")) as (port, requests):
        client = EndpointClient(LOOPBACK)
        answer = await client.send(f"http://127.0.0.1:{port}/hook?a=1", {"webhook-id": "x"}, b"hello", 2)
        assert (answer.status, answer.body) == (200, b"fine")
        assert requests[0].startswith(b"POST /hook?a=1 HTTP/1.1\r\n") and requests[0].endswith(
            b"\r\n\r\nhello"
        )
        await client.close()


async def test_redirects_are_answers_and_nothing_more() -> None:
    """Not even one to a place that would be allowed."""
    async with server(answers("302 Found", extra="Location: http://169.254.169.254/\r\n")) as (
        port,
        requests,
    ):
        client = EndpointClient(LOOPBACK)
        answer = await client.send(f"http://127.0.0.1:{port}/", {}, b"", 2)
        assert answer.status == 302 and len(requests) == 1
        await client.close()


async def test_one_bad_address_among_good_ones_refuses_the_name() -> None:
    resolve, asked = resolving(["8.8.8.8", "169.254.169.254"])
    client = EndpointClient(TargetRules(), resolve=resolve)
    with pytest.raises(NotSent, match=r"169\.254\.169\.254"):
        await client.send("https://hook.example/", {}, b"", 2)
    assert asked == ["hook.example"]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "fe80::1%lo"])
async def test_names_are_judged_by_their_addresses(address: str) -> None:
    client = EndpointClient(TargetRules(), resolve=resolving([address])[0])
    with pytest.raises(NotSent):
        await client.send("https://hook.example/", {}, b"", 2)


async def test_dns_rebinding_finds_no_gap() -> None:
    """What was judged is what is connected to: there is no second question in between, and each new one is judged anew."""
    async with server(answers("200 OK")) as (port, requests):
        resolve, asked = resolving(["127.0.0.1"], ["10.0.0.1"])
        client = EndpointClient(LOOPBACK, resolve=resolve)
        await client.send(f"http://hook.example:{port}/", {}, b"", 2)
        assert asked == ["hook.example"] and b"\r\nHost: hook.example" in requests[0]
        client._resolved.clear()
        with pytest.raises(NotSent):
            await client.send(f"http://hook.example:{port}/", {}, b"", 2)
        assert len(requests) == 1
        await client.close()


async def test_a_name_server_that_hangs_is_asked_once_for_each_name_and_few_at_a_time() -> None:
    asked: list[str] = []
    never = asyncio.Event()

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        await never.wait()
        raise OSError("no such name")

    client = EndpointClient(TargetRules(), resolve=resolve)
    hosts = ["a.example", "a.example", "b.example", "c.example", "d.example"]
    for _ in range(2):
        tries = [client.send(f"https://{host}/", {}, b"", 0.05) for host in hosts]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert all(isinstance(answer, NoAnswer) for answer in answers)
    assert asked == ["a.example", "b.example"]
    never.set()
    with pytest.raises(NoAnswer, match="no such name"):
        await client.send("https://d.example/", {}, b"", 1)
    assert sorted(asked) == ["a.example", "b.example", "c.example", "d.example"]


async def test_answers_are_bounded_and_the_status_counts() -> None:
    async with server(answers("200 OK", b"x" * 200_000)) as (port, _):
        client = EndpointClient(LOOPBACK)
        answer = await client.send(f"http://127.0.0.1:{port}/", {}, b"", 2)
        assert answer.status == 200 and answer.body == b""
        await client.close()


@pytest.mark.parametrize(
    "speaks", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"]
)
async def test_hanging_ends_with_the_deadline(speaks: bytes) -> None:
    never = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(speaks)
        await never.wait()
        writer.close()

    started = await asyncio.start_server(stall, "127.0.0.1", 0)
    client = EndpointClient(LOOPBACK)
    with pytest.raises(NoAnswer):
        await client.send(f"http://127.0.0.1:{started.sockets[0].getsockname()[1]}/", {}, b"", 0.2)
    await client.close()
    never.set()
    started.close()
    await started.wait_closed()


async def test_nobody_there_and_nonsense() -> None:
    async def nonsense(head: bytes) -> bytes:
        return b"SSH-2.0-OpenSSH_9.2\r\n\r\n"

    async with server(nonsense) as (port, _):
        client = EndpointClient(LOOPBACK)
        with pytest.raises(NoAnswer):
            await client.send(f"http://127.0.0.1:{port}/", {}, b"", 2)
    with pytest.raises(NoAnswer):
        await client.send(f"http://127.0.0.1:{port}/", {}, b"", 2)
    with pytest.raises(NotSent):
        await client.send(f"http://127.0.0.1:{port}/", {"a": "b\r\nc: d"}, b"", 2)
    await client.close()


async def test_tls_names_the_host_and_checks_its_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hook.example").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    rules = TargetRules(networks=parse_networks("127.0.0.0/8"), ports=None)
    async with server(answers("200 OK"), context) as (port, requests):
        resolve, _ = resolving(["127.0.0.1"])
        client = EndpointClient(rules, ca_file=str(tmp_path / "ca.pem"), resolve=resolve)
        assert (await client.send(f"https://hook.example:{port}/", {}, b"", 5)).status == 200
        with pytest.raises(NoAnswer):
            await client.send(f"https://other.example:{port}/", {}, b"", 5)
        with pytest.raises(NoAnswer):
            await EndpointClient(rules, resolve=resolve).send(f"https://hook.example:{port}/", {}, b"", 5)
        assert len(requests) == 1
        await client.close()
