"""A real Valkey, or Redis, for the tests: on a unix socket, without anything on disk."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import valkey

from playhead.cache.valkey import ValkeyCache

PROGRAMS = ("valkey-server", "redis-server")
START_SECONDS = 10.0


class ValkeyServer:
    """One server; `stop` freezes it, `kill` and `start` restart it empty. `clients` closes what is open."""

    def __init__(self, program: str, directory: Path, clients: ExitStack) -> None:
        self._clients = clients
        self._program = program
        self._directory = directory
        self.socket = directory / "valkey.sock"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def cache(self, *, url: str | None = None, **options: Any) -> ValkeyCache:
        """A new cache on this server, closed with it."""
        return self._clients.enter_context(closing(ValkeyCache(url or self.url, **options)))

    def client(self) -> Any:
        """A new client of the library, closed with this server."""
        return self._clients.enter_context(closing(valkey.Valkey.from_url(self.url)))

    def start(self) -> None:
        with suppress(FileNotFoundError):
            self.socket.unlink()
        command = [self._program, "--port", "0", "--unixsocket", str(self.socket), "--save", ""]
        command += ["--appendonly", "no", "--dir", str(self._directory), "--maxmemory", "256mb"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            assert time.monotonic() < until, f"{self._program} did not start"

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self._program} ended with {self._process.returncode}"
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.socket))
                client.sendall(b"PING\r\n")
                return client.recv(16) == b"+PONG\r\n"
            except OSError:
                return False

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)


@contextmanager
def valkey_server(directory: Path) -> Iterator[ValkeyServer]:
    """Run a server in `directory`, whose path must be short. Skips the test without one to run."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"needs {' or '.join(PROGRAMS)} (Debian: apt install redis-server)")
    with ExitStack() as clients:
        server = ValkeyServer(program, directory, clients)
        try:
            server.start()
            yield server
        finally:
            server.resume()
            server.kill()
