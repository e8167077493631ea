"""The server's process: one per home, listening early, ended cleanly.

1. Take the home's lock, or name the process that has it and exit.
2. Listen: from here on clients can connect, and wait for an answer instead of for a server.
3. Open the store, serve, and start the rest behind it (`components`).
4. At SIGTERM or SIGINT: stop taking requests, end streams, stop the components, close the store.

Killed at any moment it leaves nothing that the next start must repair: the lock and the sockets are
the kernel's, and everything else is in the store or with the agents.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from shoal import __version__, faults, statefiles
from shoal.cluster.local import home as homes
from shoal.cluster.local.home import Home, HomeError
from shoal.cluster.local.processes import close_inherited_on_exec, raise_file_limit

_LOG = logging.getLogger("shoal.server")
_USAGE = (
    "usage: python -m shoal.server [--home PATH] [--store URL] [--listen HOST:PORT"
    " [--tls-cert FILE --tls-key FILE | --insecure=yes]]"
)
_KEPT = ("listen", "store", "tls_cert", "tls_key", "insecure")
_PRESENCE_SECONDS = 1.0
"""How often a server looks whether its home is still there."""


@dataclass(frozen=True)
class Options:
    """What the command line said; None: as it was last said."""

    home: str = ""
    listen: str | None = None
    store: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: str | None = None
    """`yes`: plain HTTP at a loopback address, for tests."""


def main(arguments: list[str] | None = None) -> int:
    """Run a server; the exit code of its process: 0 after a clean end, 4 when one runs already."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    if options is None:
        print(_USAGE, file=sys.stderr)  # noqa: T201
        return 2
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        home = (Home(options.home) if options.home else Home.default()).create()
    except HomeError as error:
        _LOG.error("%s", error)
        return 1
    lock = home.component_lock("server")
    if not lock.try_acquire():
        _LOG.error("a server runs for %s already: process %s", home.path, lock.holder())
        return 4
    return _run(home, options, lock)


def _run(home: Home, options: Options, lock: homes.Lock) -> int:
    from shoal.objects.errors import ShoalError  # once the lock is ours: the rest costs time

    close_inherited_on_exec()
    raise_file_limit()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        code = _serve(home, _remembered(home, options), lock)
    except ShoalError as error:
        _LOG.error("%s%s", error.message, f" ({error.hint})" if error.hint else "")
        code = error.exit_code
    except OSError:
        _LOG.exception("the server cannot run")
        code = 1
    if lock.is_ours:
        home.server_json.unlink(missing_ok=True)
    logging.shutdown()
    # threads that wait for a node that does not answer must not keep the process from ending
    os._exit(code)


def _end_when_lost(presence: homes.Presence, stop: Callable[[], None]) -> None:
    """End the server when its home or a socket is no longer its own: an agent starts another, which
    makes the socket anew. A server without its home would go on driving the agents of the next."""
    while not (why := presence.lost()):
        time.sleep(_PRESENCE_SECONDS)
    _LOG.error("this server ends: %s", why)
    stop()


def _serve(home: Home, options: Options, lock: homes.Lock) -> int:
    tls: Any = None
    bound: list[tuple[Any, Any, Any]] = []
    if options.listen:  # before anybody can connect: this one may be taken, and then there is no server
        from shoal.server.listeners import listen_tcp

        tls = _tls(home, options)
        bound.append(("tcp", listen_tcp(options.listen), tls and tls.context))
    bound.append(("api", homes.listen(home.api_socket), None))
    bound.append(("tasks", homes.listen(home.tasks_socket), None))
    faults.point("server.sockets.listening")
    from shoal.clock import SteadyClock
    from shoal.server.components import open_store
    from shoal.server.listeners import Listener, Listeners

    clock = SteadyClock()
    store = open_store(options.store or home.store_db, clock)
    faults.point("server.store.open")
    _remember(home, options)

    from shoal.cluster.local.platform import LocalPlatform
    from shoal.server.components import assemble

    presence = homes.Presence(lock, [home.api_socket, home.tasks_socket])
    listeners = Listeners([Listener(*each) for each in bound])
    platform = LocalPlatform(home, clock)
    assembled = assemble(platform, store, clock, listeners, shared=bool(options.store))

    statefiles.on_damage(assembled.components.state_damaged)

    def end(number: int, frame: FrameType | None) -> None:
        assembled.serving.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    _announce(home, listeners.sockets, tls.fingerprint if tls else "")
    assembled.components.start(assembled.services)
    gc.freeze()  # what is there now stays: looking through it again and again is for nothing
    _LOG.info("serving %s", home.path)
    threading.Thread(
        target=_end_when_lost, args=(presence, assembled.serving.stop), name="presence", daemon=True
    ).start()
    try:
        assembled.serving.run()
    finally:
        _LOG.info("ending")
        assembled.components.stop()
        assembled.services.close()
        store.close()
    return 0


def _tls(home: Home, options: Options) -> Any:
    from shoal.objects.errors import Invalid
    from shoal.server.listeners import is_loopback, server_tls

    if options.insecure != "yes":
        return server_tls(home.keys, options.tls_cert or "", options.tls_key or "")
    if not is_loopback(options.listen or ""):
        raise Invalid(
            f"{options.listen} would carry tokens in plain text over the network",
            hint="leave --insecure out: the server makes a certificate for itself",
        )
    return None


def _parse(arguments: list[str]) -> Options | None:
    """argparse would cost more than all of this."""
    said: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        option = name.removeprefix("--").replace("-", "_")
        if not name.startswith("--") or option not in ("home", *_KEPT):
            return None
        said[option] = value if equals else next(words, "")
    for name in ("tls_cert", "tls_key"):
        if said.get(name):  # an agent that restarts the server has another working directory
            said[name] = str(Path(said[name]).absolute())
    return Options(**said)


def _remembered(home: Home, options: Options) -> Options:
    """What was said, or else what was said the last time: agents that restart a server know only its
    home."""
    kept, said = _kept(home, options.store), {name: getattr(options, name) for name in _KEPT}
    if options.listen is not None:
        kept = {**kept, "insecure": ""}  # plain HTTP is asked for with the address that it is for
    return Options(options.home, **{k: kept.get(k, "") if v is None else v for k, v in said.items()})


def _remember(home: Home, options: Options) -> None:
    """Keep what was said for the next start, now that it is known to work."""
    import msgspec

    said: dict[str, str] = {name: getattr(options, name) or "" for name in _KEPT}
    if said == {**dict.fromkeys(_KEPT, ""), **_kept(home, options.store)}:
        return
    file, copy = _options_files(home)
    statefiles.write(file, msgspec.json.encode(said), copy=copy)
    faults.point("server.options.written")


def _kept(home: Home, store: str | None) -> dict[str, str]:
    import msgspec

    from shoal.objects.errors import Invalid

    file, copy = _options_files(home)
    decode = functools.partial(msgspec.json.decode, type=dict[str, str])
    found = statefiles.read(file, decode, _LOG.warning, copy=copy)
    damaged = sorted(path.name for path in home.run.glob("server-options*.damaged-*"))
    if found is None and damaged and store is None:
        # without it the server would come up with another store, as if all jobs were gone
        raise Invalid(
            f"which store the server uses is not known: {', '.join(damaged)} cannot be read",
            hint="start it once with --store URL (--store '' for the one in the home)",
        )
    return found or {}


def _options_files(home: Home) -> tuple[Path, Path]:
    return home.run / "server-options.json", home.run / "server-options.copy.json"


def _announce(home: Home, listeners: list[Any], fingerprint: str) -> None:
    """`server.json`, for people and `doctor`; only the lock shows whether a server runs."""
    import msgspec

    document = {
        "pid": os.getpid(),
        "started": time.time(),
        "version": __version__,
        "socket": str(home.api_socket),
        "addresses": [":".join(map(str, a[:2])) for a in _addresses(listeners)],
        "fingerprint": fingerprint,
    }
    statefiles.write(home.server_json, msgspec.json.encode(document) + b"\n")
    faults.point("server.announced")


def _addresses(listeners: list[Any]) -> list[tuple[Any, ...]]:
    return [a for a in (listener.getsockname() for listener in listeners) if isinstance(a, tuple)]
