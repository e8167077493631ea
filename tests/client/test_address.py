from __future__ import annotations

import socket
from pathlib import Path

import pytest

from shoal.client.address import Address, connect_unix, home_address, shoal_home
from shoal.objects.errors import Invalid


@pytest.mark.parametrize(
    ("text", "path", "host", "port", "secure"),
    [
        ("unix:///run/shoal/api.sock", "/run/shoal/api.sock", "", 0, False),
        ("http://127.0.0.1:7450", "", "127.0.0.1", 7450, False),
        ("http://example.org", "", "example.org", 80, False),
        ("https://example.org/", "", "example.org", 443, True),
        ("https://[::1]:7450", "", "::1", 7450, True),
    ],
)
def test_addresses(text: str, path: str, host: str, port: int, secure: bool) -> None:
    address = Address.parse(text)
    assert (address.path, address.host, address.port, address.secure) == (path, host, port, secure)
    assert address.text == text


@pytest.mark.parametrize(
    "text", ["", "unix://relative", "ftp://x", "http://", "http://x:port", "example.org", "http:/x"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(Invalid, match="is not the address of a server"):
        Address.parse(text)


def test_the_home_is_what_was_said_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SHOAL_HOME", raising=False)
    assert shoal_home() == Path.home() / ".shoal"
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))
    assert shoal_home() == tmp_path
    assert shoal_home("~/other") == Path.home() / "other"
    assert home_address(tmp_path).path == f"{tmp_path}/api.sock"


@pytest.mark.parametrize("depth", [1, 12])
def test_a_socket_may_be_far_down(tmp_path: Path, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path.joinpath(*["a-folder-of-some-length"] * depth)
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        listener.listen()
        before = _open_files()
        connect_unix(str(folder / "s"), 5.0).close()
        with pytest.raises(FileNotFoundError):
            connect_unix(str(folder / "none"), 5.0)
        assert _open_files() == before


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_an_ipv6_host_keeps_its_colons() -> None:
    assert Address.parse("http://[fe80::1]:80").host == "fe80::1"
