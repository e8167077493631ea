"""What each request of a client does: one entry for each, all answered after the commit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shoal import __version__
from shoal.cluster.local import protocol
from shoal.cluster.local.execs import Execs
from shoal.cluster.local.node import Node
from shoal.cluster.local.protocol import Answer, Call, frame
from shoal.cluster.local.serving import Client
from shoal.cluster.local.usage import Meter
from shoal.objects.errors import ShoalError, VersionSkew

__all__ = ["Requests"]

POLL_SECONDS = 0.02


class Requests:
    """Carries clients' calls to the node. Belongs to the loop's thread."""

    def __init__(self, node: Node, execs: Execs, meter: Meter, pid: int) -> None:
        self._node = node
        self._execs = execs
        self._meter = meter
        self._pid = pid

    def handle(self, client: Client, call: Call) -> None:
        """Do what is asked; the answer follows once it is durable."""
        fail = functools.partial(client.fail, call.id)
        self._node.turn.otherwise(fail)
        try:
            self._handle(client, call)
        except ShoalError as error:
            self._node.turn.after(functools.partial(fail, error))

    def _handle(self, client: Client, call: Call) -> None:
        node, request = self._node, call.request
        result: Any = None  # Any: each request has its own
        match request:
            case protocol.Hello():
                result = self._greet(request)
            case protocol.Ping():
                pass
            case protocol.Describe():
                result = node.state()
            case protocol.Watch():
                node.turn.after(functools.partial(self._watch, client))
            case protocol.Admit():
                result = node.admit(request.specs)
            case protocol.Release():
                node.release(request.tasks)
            case protocol.Launch():
                node.launch(request.tasks)
            case protocol.StopTask():
                node.stop(request.task, request.grace_seconds, request.reason)
            case protocol.Acknowledge():
                node.acknowledge(request.task)
            case protocol.ForgetJob():
                node.forget_job(request.namespace, request.job_uid, request.outputs)
            case protocol.Measure():
                result = self._meter.usages(request.tasks)
            case protocol.Exec():
                self._execs.start(client, call.id, request)
                return
            case protocol.ShutDown():
                self._shut_down(request.grace_seconds, functools.partial(client.answer, call.id))
                return
        node.turn.after(functools.partial(client.answer, call.id, result))

    def _greet(self, request: protocol.Hello) -> protocol.Greeting:
        name = self._node.declaration.name
        if request.version != protocol.VERSION:
            raise VersionSkew(
                f"the agent of node {name} is of Shoal {__version__} and does not work with this one",
                hint="shoal down, then shoal up",
            )
        return protocol.Greeting(version=protocol.VERSION, node=name, pid=self._pid, shoal=__version__)

    def _watch(self, client: Client) -> None:
        client.watching = True
        client.send(frame(Answer(changes=self._node.snapshot())))

    def _shut_down(self, grace_seconds: float, answer: Callable[[], None]) -> None:
        """Stop every task; when the last has ended, answer and exit."""
        for key in list(self._node.ledger.tasks):
            self._node.stop(key, grace_seconds, "Shutdown")
        if any(record.holds_capacity for record in self._node.ledger.tasks.values()):
            self._node.loop.later(
                POLL_SECONDS, functools.partial(self._shut_down, grace_seconds, answer)
            )
            return
        self._node.turn.after(answer)
        self._node.turn.after(self._node.loop.stop)
