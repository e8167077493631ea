"""A program that joins its standard streams with a TCP port of the task: `python -I -S relay.py PORT`.

It runs beside the task (`shoal port-forward`), so the port is the one of the task's own network.
Standard input goes to the connection and its end closes that half. What the connection gives goes to
standard output in pieces, each after its length in four bytes, most significant first; a length of 0
says that the task has closed its half. Standard error says `+` once it is connected. The exit code is
0, 111 when nothing listens on the port, and 104 when the connection was reset.
"""

from __future__ import annotations

import _socket
import _thread
import os
import sys

CONNECTED = b"+"
NOTHING_LISTENS = 111
_RESET = 104
_PIECE_BYTES = 65536


def main(arguments: list[str]) -> int:
    """See the module."""
    connection = _connect(int(arguments[0]))
    if connection is None:
        return NOTHING_LISTENS
    os.write(2, CONNECTED)
    finished = _thread.allocate_lock()
    finished.acquire()
    _thread.start_new_thread(_send, (connection, finished))
    try:
        while data := connection.recv(_PIECE_BYTES):
            _write_all(len(data).to_bytes(4, "big") + data)
    except OSError:
        return _RESET
    _write_all(bytes(4))  # in the stream itself: another pipe could be read before the last data
    finished.acquire()
    return 0


def _connect(port: int) -> _socket.socket | None:
    for family, host in ((_socket.AF_INET, "127.0.0.1"), (_socket.AF_INET6, "::1")):
        try:
            connection = _socket.socket(family, _socket.SOCK_STREAM)
            connection.connect((host, port))
        except OSError:
            continue
        return connection
    return None


def _send(connection: _socket.socket, finished: _thread.LockType) -> None:
    """From standard input to the connection, in a thread: neither direction waits for the other."""
    try:
        while data := os.read(0, _PIECE_BYTES):
            connection.sendall(data)
        connection.shutdown(_socket.SHUT_WR)
    except OSError:
        pass  # the task has closed the connection: nothing more can be sent
    finished.release()


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    # the thread that still waits for input must not hold up the end
    os._exit(main(sys.argv[1:]))
