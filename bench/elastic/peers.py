"""The peers' environment: a virtual environment that borrows this one's torch, and `peers.txt` in it.

torch takes gigabytes, and figures of two torches are no comparison: the peers run with the project's.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

__all__ = ["prepare", "versions"]

_WANTED = Path(__file__).with_name("peers.txt")


def prepare(folder: Path) -> str:
    """The interpreter of the environment in this folder, which is made if it is not there.

    Raises:
        subprocess.CalledProcessError: pip could not install the peers; it has said why.
    """
    python = folder / "bin" / "python"
    done = folder / "peers.txt"
    if python.exists() and done.exists() and done.read_bytes() == _WANTED.read_bytes():
        return str(python)
    venv.create(folder, with_pip=True)
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout.strip()
    # sorted last, so that what is installed here is found before what is borrowed
    Path(site, "zz_borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "-r", str(_WANTED)], check=True, stdin=subprocess.DEVNULL)
    done.write_bytes(_WANTED.read_bytes())
    return str(python)


def versions(peers: str | None) -> str:
    """Of everything that is measured."""
    own = _ask(sys.executable, ["torch", "shoal"])
    return own if peers is None else f"{own}, {_ask(peers, ['torchft-nightly', 'adaptdl'])}"


def _ask(python: str, names: list[str]) -> str:
    program = "import sys; from importlib.metadata import version\n"
    program += "print(', '.join(f'{name} {version(name)}' for name in sys.argv[1:]))"
    answer = subprocess.run(
        [python, "-c", program, *names], capture_output=True, check=True, text=True, timeout=60
    )
    return answer.stdout.strip()
