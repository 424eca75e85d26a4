"""Command: `headrace generate compose`."""

from __future__ import annotations

import click

from headrace import __version__
from headrace.cli.generated import GeneratedRow, show
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number

ETCD = "gcr.io/etcd-development/etcd:v3.5.21"

HEAD = """\
# {title}
#   docker compose -f {file} up -d
# Whoever reaches the ports may do everything, so they are published on this host only. For a network: headrace serve --secure.
services:
"""

BROKER = """\
  {name}:
    image: {image}
    command: ["serve", "--insecure"]
    environment:
      HEADRACE_HOST: 0.0.0.0
      HEADRACE_KAFKA_PORT: "{kafka}"
      HEADRACE_HTTP_PORT: "{http}"
      # Clients are told this name, and must be able to reach it{inside}.
      HEADRACE_ADVERTISED_HOST: ${{HEADRACE_ADVERTISED_HOST:-{advertised}}}
      HEADRACE_ALLOWED_HOSTS: {name}
      HEADRACE_DATA_DIR: /var/lib/headrace
{cluster}    ports:
      - "127.0.0.1:{kafka}:{kafka}"
      - "127.0.0.1:{http}:{http}"
    volumes:
      - {name}:/var/lib/headrace
    # It hands its leaderships over, syncs and closes before it ends.
    stop_grace_period: 90s
    restart: unless-stopped
"""

CLUSTER = """\
      HEADRACE_NODE_ID: "{number}"
      HEADRACE_COORDINATOR: etcd://{members}
      HEADRACE_DEFAULT_REPLICATION_FACTOR: "{replicas}"
"""

MEMBER = """\
  {name}:
    image: {image}
    command:
      - etcd
      - --name={name}
      - --data-dir=/var/lib/etcd
      - --listen-client-urls=http://0.0.0.0:2379
      - --advertise-client-urls=http://{name}:2379
      - --listen-peer-urls=http://0.0.0.0:2380
      - --initial-advertise-peer-urls=http://{name}:2380
      - --initial-cluster={members}
      - --initial-cluster-token=headrace
      - --auto-compaction-retention=1h
    volumes:
      - {name}:/var/lib/etcd
    restart: unless-stopped
"""


@leaf(GeneratedRow, Shape.ONE)
@click.option(
    "--brokers",
    type=Number(1, 9),
    default=1,
    show_default=True,
    help="More than one: a cluster, with etcd.",
)
@click.option(
    "--image", default=f"headrace:{__version__}", show_default=True, help="The image: docker build -t NAME ."
)
def command(run: Invocation, brokers: int, image: str) -> None:
    """Write a compose file: one broker, or a cluster with etcd."""
    show(run, "compose.yaml" if brokers == 1 else "compose-cluster.yaml", composed(brokers, image))


def composed(brokers: int, image: str) -> str:
    if brokers == 1:
        broker = BROKER.format(
            name="headrace", image=image, kafka=9092, http=9324, advertised="localhost", inside=": in the network of this file it is headrace", cluster=""
        )  # fmt: skip
        return HEAD.format(title="One broker.", file="compose.yaml") + broker + _volumes(["headrace"])
    members = [f"etcd-{number}" for number in range(1, 4)]
    names = [f"headrace-{number}" for number in range(1, brokers + 1)]
    text = HEAD.format(title=f"{brokers} brokers and three members of etcd.", file="compose-cluster.yaml")
    for number, name in enumerate(names, 1):
        cluster = CLUSTER.format(
            number=number, members=",".join(f"{member}:2379" for member in members), replicas=min(3, brokers)
        )
        text += BROKER.format(
            name=name, image=image, kafka=9091 + number, http=9323 + number, advertised=name, cluster=cluster,
            inside=", the other brokers too. From this host as well: its name or address in the network, for all of them",
        )  # fmt: skip
    peers = ",".join(f"{member}=http://{member}:2380" for member in members)
    text += "".join(MEMBER.format(name=member, image=ETCD, members=peers) for member in members)
    return text + _volumes([*names, *members])


def _volumes(names: list[str]) -> str:
    return "volumes:\n" + "".join(f"  {name}: {{}}\n" for name in names)
