"""HTTP by hand, for what no well-behaved client does."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec

from shoal.cluster.local import home as homes

__all__ = ["Raw", "problem_in"]


class Raw:
    """One connection; what is sent is what is written here."""

    def __init__(self, path: Path, timeout_seconds: float = 20.0) -> None:
        self.socket = homes.connect(path, timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, head: str, body: bytes = b"") -> None:
        lines = head.strip().splitlines()
        text = "\r\n".join([lines[0].strip(), "Host: shoal", *(line.strip() for line in lines[1:])])
        self.socket.sendall(text.encode() + b"\r\n\r\n" + body)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body (by its length) of the next answer."""
        buffer = b""
        while b"\r\n\r\n" not in buffer:
            buffer += self._more()
        head, _, body = buffer.partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in rest)}
        while len(body) < int(headers.get("content-length", "0")):
            body += self._more()
        return int(first.split()[1]), headers, body

    def until(self, text: bytes) -> bytes:
        """What comes, up to and with the piece in which `text` is complete."""
        data = b""
        while text not in data:
            data += self._more()
        return data

    def until_closed(self) -> bytes:
        data = b""
        try:
            while piece := self.socket.recv(65536):
                data += piece
        except ConnectionResetError:
            pass
        return data

    def _more(self) -> bytes:
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionResetError("the server closed the connection")
        return piece


def problem_in(body: bytes) -> dict[str, object]:
    return msgspec.json.decode(body)
