"""A cluster of real Valkey, or Redis, servers on loopback, for the tests and benchmarks."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import valkey

from tests.servers.valkey_server import PROGRAMS

SLOTS = 16384
READY_SECONDS = 30.0
NODE_TIMEOUT_MS = 1000
"""The time after which nodes agree that one of them has failed, and its replica takes over."""


@dataclass(eq=False)
class Node:
    """One server of a cluster."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def client(self) -> Any:
        return valkey.Valkey(port=self.port, socket_timeout=10)

    @property
    def id(self) -> str:
        return str(self.client.cluster("myid").decode())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Cluster:
    """Masters with the same number of slots each, and perhaps a replica for each of them."""

    def __init__(self, nodes: list[Node], masters: int) -> None:
        self.masters = nodes[:masters]
        self.replicas = nodes[masters:]
        self.nodes = nodes

    @property
    def url(self) -> str:
        return "valkey://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def join(self) -> None:
        """Make a cluster of the nodes, and wait until all of them agree about it."""
        for number, node in enumerate(self.masters):
            first = SLOTS * number // len(self.masters)
            last = SLOTS * (number + 1) // len(self.masters) - 1
            node.client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
            node.client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            node.client.execute_command("CLUSTER MEET", "127.0.0.1", self.nodes[0].port, *self._bus(0))
        wait_for(lambda: all(len(self._known(node)) == len(self.nodes) for node in self.nodes))
        for master, replica in zip(self.masters, self.replicas, strict=False):
            replica.client.execute_command("CLUSTER REPLICATE", master.id)
        wait_for(lambda: all(self._is_ready(node) for node in self.nodes))

    def _bus(self, number: int) -> list[int]:
        (bus,) = self.nodes[number].client.config_get("cluster-port").values()
        return [int(bus)]

    def _known(self, node: Node) -> dict[str, Any]:
        nodes: dict[str, Any] = node.client.cluster("nodes")
        return {name: about for name, about in nodes.items() if "handshake" not in about["flags"]}

    def _is_ready(self, node: Node) -> bool:
        lines = self._known(node).values()
        replicas = sum("slave" in about["flags"] for about in lines)
        state = node.client.cluster("info")["cluster_state"]
        return state == "ok" and replicas == len(self.replicas)

    def master_of(self, slot: int) -> Node:
        """Return the node that has `slot` now."""
        for node in self.nodes:
            with suppress(valkey.ValkeyError):
                for first, last, (_, port, *_), *_ in node.client.cluster("slots"):
                    if first <= slot <= last:
                        return next(one for one in self.nodes if one.port == port)
        raise AssertionError("no node has the slot")

    def move(self, slot: int, target: Node) -> None:
        """Move a slot and its keys while clients use it, as the cluster's tools do."""
        source = self.master_of(slot)
        target.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source.id)
        source.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.client.execute_command("CLUSTER GETKEYSINSLOT", slot, 20):
            source.client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source, *self.masters):
            with suppress(valkey.ValkeyError):
                node.client.execute_command("CLUSTER SETSLOT", slot, "NODE", target.id)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for a state of the cluster, which its nodes reach by messages among themselves."""
    until = time.monotonic() + READY_SECONDS
    while not condition():
        assert time.monotonic() < until, "the cluster did not get there"
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def valkey_cluster(
    *, masters: int = 3, replicas: bool = False, options: tuple[str, ...] = ()
) -> Iterator[Cluster]:
    """Run a cluster. Skips the test without a server to run."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"needs {' or '.join(PROGRAMS)} (Debian: apt install redis-server)")
    count = masters * (1 + replicas)
    nodes: list[Node] = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            ports = _free_ports(2 * count)
            for port, bus in zip(ports[:count], ports[count:], strict=True):
                home = Path(directory, str(port))
                home.mkdir()
                command = [program, "--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
                command += ["--cluster-port", str(bus), "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
                command += ["--save", "", "--appendonly", "no", "--dir", str(home), "--maxmemory", "256mb"]
                command += ["--repl-diskless-sync-delay", "0", *options]
                log = subprocess.DEVNULL
                nodes.append(Node(port, subprocess.Popen(command, stdout=log, stderr=log)))
            for node in nodes:
                wait_for(lambda node=node: _answers(node))  # type: ignore[misc]
            cluster = Cluster(nodes, masters)
            cluster.join()
            yield cluster
        finally:
            for node in nodes:
                node.kill()


def _answers(node: Node) -> bool:
    assert node.process.poll() is None, f"a server ended with {node.process.returncode}"
    with suppress(valkey.ConnectionError):
        return bool(node.client.ping())
    return False
