"""The way to a server from Python and from the command line: the Store and the actions over HTTP.

Standard library and msgspec only, thread-safe, and light to import: every command of the command line
pays for it. Knows the protocols it speaks for (`store.base`, `cluster.base`,
`history.base`) and none of their implementations.

- `client`: `Client`, which is the Store plus logs, exec, edits of spec, waiting, explaining
- `asynchronous`: `AsyncClient`, the same for asyncio; loaded when it is used
- `store`: the Store's calls; `watch`: watches that survive lost connections, and `reflect`
- `submit`: a command as a Job: its name, its environment, its defaults
- `logs`, `session`: streams of logs, and commands beside a task; `rsh`: the latter for mpirun
- `reports`: the Structs of all other answers of the server
- `transport`, `address`, `sse`, `wire`: connections, where servers are, and what goes over the wire
"""

from typing import TYPE_CHECKING, Any

from shoal.client.client import Client
from shoal.client.store import Applied
from shoal.history.base import Entry
from shoal.store.base import Watch

if TYPE_CHECKING:
    from shoal.client.asynchronous import AsyncClient

__all__ = ["Applied", "AsyncClient", "Client", "Entry", "Watch"]


def __getattr__(name: str) -> Any:
    if name != "AsyncClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shoal.client.asynchronous import AsyncClient

    return AsyncClient
