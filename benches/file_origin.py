"""An HTTP origin with one file, in a process of its own: `python -m benches.file_origin BYTES DELAY_SECONDS`.

Prints its port. It answers each request after the delay, in a thread, as fast as the socket takes the bytes,
so that the client is the limit.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time

from tests.servers.payload import Payload

RANGE = re.compile(rb"(?im)^range: bytes=(\d+)-(\d+)\r$")


def serve(connection: socket.socket, body: memoryview, delay_seconds: float) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = b""
    with connection:
        while True:
            while b"\r\n\r\n" not in received:
                data = connection.recv(65536)
                if not data:
                    return
                received += data
            head, _, received = received.partition(b"\r\n\r\n")
            match = RANGE.search(head + b"\r\n")
            assert match is not None, head
            start, stop = int(match[1]), min(int(match[2]) + 1, len(body))
            time.sleep(delay_seconds)
            answer = (
                f"HTTP/1.1 206 Partial Content\r\ncontent-length: {stop - start}\r\n"
                f'content-range: bytes {start}-{stop - 1}/{len(body)}\r\netag: "1"\r\n\r\n'
            )
            try:
                connection.sendall(answer.encode())
                connection.sendall(body[start:stop])
            except OSError:
                return  # the client has all that it needs


def main() -> None:
    size_bytes, delay_seconds = int(sys.argv[1]), float(sys.argv[2])
    body = memoryview(Payload(size_bytes=size_bytes).slice(0, size_bytes))
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, body, delay_seconds), daemon=True).start()


if __name__ == "__main__":
    main()
