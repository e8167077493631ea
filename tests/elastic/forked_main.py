"""A process that has torch imported, and forks into whatever program it is asked to be.

Requests and answers are JSON objects, one on a line, on standard input and output. The child leaves
`serve` with its request and runs the program at the top of this module, and then ends as a script does:
excepthook, atexit, exit code; but does not take its modules down, which takes seconds of processor time
once it is a copy.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import runpy
import select
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import torch

import shoal.elastic.api
import shoal.elastic.checkpoint.saver
import shoal.faults

_NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def serve() -> dict[str, Any] | None:
    """Fork for each request: the request, in a child; None in the parent, when its input is closed."""
    children: set[int] = set()
    buffer = b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.005 if children else None)
        for pid in list(children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                children.discard(pid)
                answer({"ended": pid, "status": os.waitstatus_to_exitcode(status)})
        if not readable:
            continue
        chunk = os.read(0, 1 << 16)
        if not chunk:
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return None
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            request = json.loads(line)
            pid = os.fork()
            if pid == 0:
                return request
            children.add(pid)
            answer({"started": pid})


def answer(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def become(request: dict[str, Any]) -> None:
    """Take on the request's surroundings."""
    if request["network"] is not None:
        namespace = os.open(request["network"], os.O_RDONLY)
        if _libc.setns(namespace, _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(request["environment"])
    importlib.reload(shoal.faults)  # it has read the environment of this process
    if os.environ.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    sys.argv = list(request["arguments"])
    faulthandler.register(signal.SIGUSR1, file=2)  # where it stands, for a test that failed


def run() -> int:
    """The program in `sys.argv`: its exit code."""
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(sys.argv[0]).parent))
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        return 1
    return 0


if __name__ == "__main__":
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # it imports a good part of torch
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise RuntimeError(f"{threads} threads: a fork would lose some")
    gc.collect()
    gc.freeze()
    answer({"ready": os.getpid()})
    asked = serve()
    status = 0
    if asked is not None:
        become(asked)
        status = run()
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
