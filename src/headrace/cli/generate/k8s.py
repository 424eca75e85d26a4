"""Command: `headrace generate k8s`."""

from __future__ import annotations

import click

from headrace import __version__
from headrace.cli.generate.compose import ETCD
from headrace.cli.generated import GeneratedRow, show
from headrace.cli.invocation import Invocation
from headrace.cli.kubernetes import manifests
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number


@leaf(GeneratedRow, Shape.ONE)
@click.option(
    "--brokers", type=Number(1, 99), default=3, show_default=True, help="How many. One has no etcd."
)
@click.option("--namespace", default="headrace", show_default=True, help="Where.")
@click.option(
    "--image", default=f"headrace:{__version__}", show_default=True, help="The image: docker build -t NAME ."
)
@click.option("--storage", default="20Gi", show_default=True, help="The volume of each broker.")
@click.option(
    "--secure", is_flag=True, help="TLS, users and rights; wants a secret with the files of security init."
)
def command(run: Invocation, brokers: int, namespace: str, image: str, storage: str, secure: bool) -> None:
    """Write Kubernetes manifests: brokers as a stateful set, and etcd.

    \b
    headrace generate k8s | kubectl apply -f -
    """
    show(run, "headrace.yaml", manifests(brokers, namespace, image, ETCD, storage, secure=secure))
