"""The client: the Store, and the verbs that are more than one call to it.

>>> from shoal.client import Client
>>> shoal = Client.connect()  # the server of $SHOAL_HOME
>>> job = shoal.run("python train.py --epochs 5", name="train", workers=4, cpu="500m")
>>> job.spec.roles[0].command
('python', 'train.py', '--epochs', '5')
>>> [record.object.metadata.name for record in shoal.list("jobs").records]
['train']
>>> shoal.scale("default", "train", 6).spec.roles[0].replicas
6
>>> shoal.explain("job", "default", "train").phase
'Pending'
>>> shoal.cancel("default", "train").spec.cancelled
True
>>> shoal.get("job", "default", "trian")
Traceback (most recent call last):
shoal.objects.errors.NotFound: job default/trian does not exist
>>> shoal.close()

`shoal.logs("default", "train", follow=True)` gives what the tasks write, and
`shoal.wait_finished("default", "train").status.phase` how the job ended.

A kind may be given as its class (`Job`), as its name in any spelling (`"job"`, `"jobs"`) or as the
`Kind`. Every verb that changes state edits a spec, and tries again when another write came between.
Thread-safe; errors are those of `shoal.objects.errors`, one sentence each.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast
from urllib.parse import quote

from shoal.client.address import Address, home_address, shoal_home
from shoal.client.store import AnyKind, RemoteStore, object_path
from shoal.client.submit import copy_of, job_of
from shoal.client.transport import Transport
from shoal.client.wire import API
from shoal.objects import codec
from shoal.objects.errors import Conflict, Exists, Expired, NotFound
from shoal.objects.job import FINISHED, Job
from shoal.objects.job_kind import cancelled, scaled, suspended
from shoal.objects.kinds import JOB, as_kind
from shoal.objects.meta import Object
from shoal.objects.node import Node, cordoned, declared_lost, drained

if TYPE_CHECKING:  # what only some verbs need is imported by those
    from shoal.client.experiments import Experiments
    from shoal.client.logs import LogRecord
    from shoal.client.reports import (
        Explanation,
        Identity,
        MetricPoint,
        Readiness,
        SecretReport,
        TaskReport,
        TokenReport,
        UsageReport,
        UserReport,
        VersionReport,
    )
    from shoal.client.session import RemoteSession
    from shoal.client.watch import Change
    from shoal.history.base import Entry

__all__ = ["Client"]

K = TypeVar("K", bound=Object)
P = ParamSpec("P")
T = TypeVar("T")

_MOST_ATTEMPTS = 20


def _submits(
    build: Callable[P, Job],
) -> Callable[[Callable[[Client, Job], Job]], Callable[Concatenate[Client, P], Job]]:
    """A method with the signature of `build`, which is given the job that this makes."""

    def decorate(submit: Callable[[Client, Job], Job]) -> Callable[Concatenate[Client, P], Job]:
        def run(self: Client, *arguments: P.args, **options: P.kwargs) -> Job:
            return submit(self, build(*arguments, **options))

        of_self, of_build = (inspect.signature(each) for each in (submit, build))
        parameters = [of_self.parameters["self"], *of_build.parameters.values()]
        made = functools.wraps(submit)(run)
        vars(made)["__signature__"] = of_build.replace(parameters=parameters)
        return made

    return decorate


class Client(RemoteStore):
    """A server, seen from outside; see the module."""

    @classmethod
    def connect(
        cls,
        home: str | os.PathLike[str] | None = None,
        *,
        url: str = "",
        token: str = "",
        fingerprint: str = "",
        timeout_seconds: float = 30.0,
        check_version: bool = True,
    ) -> Client:
        """A client of the server under `home` (else `$SHOAL_HOME`, else `~/.shoal`), or of the one at
        `url`. Inside a task, where `$SHOAL_API` and `$SHOAL_TOKEN_FILE` say so, of the platform's,
        limited to the task's own job. `fingerprint` pins the certificate of an https `url`, as
        `$SHOAL_API_FINGERPRINT` does for `$SHOAL_API`. Nothing is sent before the first call.

        Raises:
            Invalid: `url` is no address.
        """
        api = os.environ.get("SHOAL_API", "")
        if url:
            address = Address.parse(url, fingerprint)
        elif home is None and api:
            address = Address.parse(api, os.environ.get("SHOAL_API_FINGERPRINT", ""))
            token = token or _token_file()
        else:
            address = home_address(shoal_home(home))
        return cls(
            Transport(address, token=token, timeout_seconds=timeout_seconds, check_version=check_version)
        )

    @property
    def experiments(self) -> Experiments:
        """Ask and tell; see `shoal.client.experiments`."""
        from shoal.client.experiments import Experiments

        return Experiments(self)

    # Edits of spec

    def edit(self, kind: type[K], namespace: str, name: str, change: Callable[[K], K]) -> K:
        """Read, change, write; again when another write came between. A `change` that changes
        nothing writes nothing.

        Raises:
            NotFound: there is no such object.
            Invalid: the change is not admitted.
            Conflict: others kept writing; or what `change` itself raised.
        """
        conflict: Conflict | None = None
        for _ in range(_MOST_ATTEMPTS):
            now = self.get(kind, namespace, name)
            wanted = change(now)
            if wanted == now:
                return now
            try:
                return self.update(wanted)
            except Conflict as error:
                conflict = error
        assert conflict is not None
        raise conflict

    def cancel(self, namespace: str, name: str) -> Job:
        """End the job for good; returns at once, its tasks get their grace period."""
        return self.edit(Job, namespace, name, cancelled)

    def suspend(self, namespace: str, name: str) -> Job:
        """Stop the job's tasks until `resume`."""
        return self.edit(Job, namespace, name, lambda job: suspended(job, True))

    def resume(self, namespace: str, name: str) -> Job:
        """Let a suspended job go on."""
        return self.edit(Job, namespace, name, lambda job: suspended(job, False))

    def scale(
        self,
        namespace: str,
        name: str,
        replicas: int,
        *,
        role: str = "",
        min_replicas: int | None = None,
    ) -> Job:
        """Give a role (the only one, where none is named) another number of tasks."""
        return self.edit(
            Job,
            namespace,
            name,
            lambda job: scaled(job, replicas, role=role, min_replicas=min_replicas),
        )

    def cordon(self, node: str) -> Node:
        """Let nothing new start on the node."""
        return self.edit(Node, "", node, lambda each: cordoned(each, True))

    def uncordon(self, node: str) -> Node:
        """Let tasks start on the node again; also ends a drain."""
        return self.edit(Node, "", node, lambda each: cordoned(each, False))

    def drain(self, node: str) -> Node:
        """Cordon the node and move its tasks away."""
        return self.edit(Node, "", node, drained)

    def lost(self, node: str, gone: bool = True) -> Node:
        """Declare the node gone for good, so that its tasks start elsewhere; or take that back."""
        return self.edit(Node, "", node, lambda each: declared_lost(each, gone))

    # Runs

    @_submits(job_of)
    def run(self, job: Job) -> Job:
        """Submit `command` as a job, as `shoal run -d` does, and return at once. The options are those
        of `shoal.client.submit.job_of`, which explains each.

        Raises:
            Invalid: an option, or the Job that they describe, is wrong; the message says what.
            Exists: a job has this name.
        """
        return self.create(job)

    def retry(self, namespace: str, name: str) -> Job:
        """Submit a finished job again, under its name with `-retry1`, or the next number that is free.

        Raises:
            NotFound: there is no such job.
            Conflict: it has not finished.
        """
        job = self.get(Job, namespace, name)
        if job.status.phase not in FINISHED:
            raise Conflict(
                f"job {name} is {job.status.phase}: only a finished job can be retried",
                hint=f"end it first: shoal cancel job/{name}",
            )
        taken = 0
        while True:
            copy = copy_of(job, taken)
            try:
                return self.create(copy)
            except Exists:
                taken = int(copy.metadata.name.rpartition("-retry")[2])

    def wait(
        self,
        kind: type[K],
        namespace: str,
        name: str,
        until: Callable[[K | None], bool],
        timeout_seconds: float | None = None,
    ) -> K | None:
        """Wait until `until` is true of the object (None: it is not there), and return it.

        Raises:
            TimeoutError: it has not become true in time.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            watch = self.watch_object(kind, namespace, name)
            there: K | None = None
            known = False
            try:
                while True:
                    left = 60.0 if deadline is None else deadline - time.monotonic()
                    if left <= 0:
                        raise TimeoutError(f"{name} is not there yet after {timeout_seconds:g} s")
                    for event in watch.wait(min(left, 60.0)):
                        if event.record is not None:
                            there = None if event.type == "Deleted" else cast("K", event.record.object)
                        known = known or event.type == "Bookmark" or event.record is not None
                        if known and until(there):
                            return there
            except Expired:
                continue  # too much has happened since: look again from the start
            finally:
                watch.close()

    def wait_finished(self, namespace: str, name: str, timeout_seconds: float | None = None) -> Job:
        """Wait until the job has succeeded, failed or been cancelled.

        Raises:
            NotFound: there is no such job, or it was deleted during the wait.
            TimeoutError: it has not finished in time.
        """

        def over(job: Job | None) -> bool:
            return job is None or job.status.phase in FINISHED

        job = self.wait(Job, namespace, name, over, timeout_seconds)
        if job is None:
            raise NotFound(f"there is no job {name} in namespace {namespace}")
        return job

    def reflect(self, kind: AnyKind, namespace: str = "") -> Iterator[Change]:
        """Changes of state without end; see `shoal.client.watch.reflect`."""
        from shoal.client.watch import reflect

        return reflect(self, as_kind(kind), namespace)

    # What tasks do

    def logs(
        self,
        namespace: str,
        name: str,
        *,
        role: str = "",
        index: int | None = None,
        since: float = 0.0,
        tail: int | None = None,
        follow: bool = False,
        previous: bool = False,
        incarnation: int | None = None,
    ) -> Iterator[LogRecord]:
        """What the job's tasks have written: the newest incarnation of each index (`previous`: the
        one before it; `incarnation`: that one), in the order of writing. `since` is a stamp; `tail`
        counts lines per task; `follow` goes on until the job has finished, later incarnations included.

        Raises:
            NotFound: there is no such job, or it has no such role, index or incarnation.
        """
        from shoal.client.logs import read_logs

        query = {
            "role": role, "index": index, "since": since or None, "tail": tail,
            "follow": follow, "previous": previous, "incarnation": incarnation,
        }  # fmt: skip
        return read_logs(self.transport, f"{object_path(JOB, namespace, name)}/logs", query)

    def exec(
        self,
        namespace: str,
        name: str,
        command: Sequence[str],
        *,
        role: str = "",
        index: int = 0,
        tty: bool = False,
    ) -> RemoteSession:
        """Run a command beside a running task of the job, in its isolation.

        Raises:
            NotFound: there is no such job, or that task does not run.
        """
        from shoal.client.session import RemoteSession

        asked = {"command": tuple(command), "role": role, "index": index, "tty": tty}
        return RemoteSession(self.transport, f"{object_path(JOB, namespace, name)}/exec", asked)

    def forward(
        self, namespace: str, name: str, port: str | int, *, role: str = "", index: int = 0
    ) -> RemoteSession:
        """One connection to a TCP port of a running task, in its network: a number, or the name of a
        port of the role. The session is as `Cluster.forward` says.

        Raises:
            NotFound: there is no such job, or that task does not run.
            Invalid: the role has no port of this name.
        """
        from shoal.client.session import RemoteSession

        asked = {"port": str(port), "role": role, "index": index}
        return RemoteSession(self.transport, f"{object_path(JOB, namespace, name)}/port-forward", asked)

    def tasks(self, namespace: str, name: str) -> tuple[TaskReport, ...]:
        """The job's tasks on the nodes that answer."""
        from shoal.client.reports import TaskReport

        answer = self.transport.request("GET", f"{object_path(JOB, namespace, name)}/tasks")
        return codec.decode(answer.body, tuple[TaskReport, ...])

    # What has happened, and why

    def events(
        self,
        *,
        namespace: str = "",
        kind: AnyKind | None = None,
        name: str = "",
        uid: str = "",
        since: float = 0.0,
        after: str = "",
        limit: int = 0,
    ) -> tuple[Entry, ...]:
        """Events, oldest first: of one object, of all of a kind, of a namespace, or all. `limit`
        takes the newest; `after` an event's id to continue from."""
        return self._entries(
            "events", namespace, kind, name, uid=uid, since=since, after=after, limit=limit
        )

    def attempts(
        self, namespace: str, name: str, *, uid: str = "", usage: bool = False, limit: int = 0
    ) -> tuple[Entry, ...]:
        """Starts and ends of a job's tasks, oldest first; with `usage` also what each had used."""
        return self._entries("attempts", namespace, JOB, name, uid=uid, usage=usage, limit=limit)

    def metrics(
        self, namespace: str, name: str, *, uid: str = "", after: int = 0
    ) -> Iterator[MetricPoint]:
        """Metric points of a job, in the order in which they came, behind the order `after`; of a job
        that is gone too.

        Raises:
            NotFound: there is no such job, and no points of one.
        """
        from shoal.client.reports import MetricPoints

        more = True
        while more:
            query = {"uid": uid, "after": after}
            path = f"{object_path(JOB, namespace, name)}/metrics"
            answer = self.transport.request("GET", path, query=query)
            page = codec.decode(answer.body, MetricPoints)
            yield from page.items
            more, uid = page.more, page.uid
            after = page.items[-1].order if page.items else after

    def explain(self, kind: AnyKind, namespace: str, name: str) -> Explanation:
        """Why the object is in the state it is in.

        Raises:
            NotFound: there is no such object.
        """
        from shoal.client.reports import Explanation

        answer = self.transport.request("GET", f"{object_path(as_kind(kind), namespace, name)}/explain")
        return codec.decode(answer.body, Explanation)

    def usage(self, namespace: str = "") -> UsageReport:
        """What nodes and tasks use now."""
        from shoal.client.reports import UsageReport

        answer = self.transport.request("GET", f"{API}/usage", query={"namespace": namespace})
        return codec.decode(answer.body, UsageReport)

    # The server itself

    def version(self) -> VersionReport:
        """The server's version and whereabouts."""
        from shoal.client.reports import VersionReport

        return codec.decode(self.transport.request("GET", "/version").body, VersionReport)

    def readiness(self) -> Readiness:
        """Whether each part of the server is up."""
        from shoal.client.reports import Readiness

        return codec.decode(self.transport.request("GET", "/readyz?verbose=true").body, Readiness)

    def schema(self, kind: AnyKind) -> dict[str, Any]:
        """The kind's JSON schema."""
        answer = self.transport.request("GET", f"/schema/{as_kind(kind).name}")
        return codec.decode(answer.body, dict[str, Any])

    # Users, tokens and audit

    def whoami(self) -> Identity:
        """The caller's name and roles."""
        return codec.decode(self.transport.request("GET", f"{API}/whoami").body, _reports().Identity)

    def users(self) -> tuple[UserReport, ...]:
        """The users that the caller may see."""
        return self._items("users", _reports().UserReport)

    def create_user(self, name: str, bindings: Sequence[tuple[str, str]] = ()) -> UserReport:
        """Add a user with `(role, namespace)` bindings; an empty namespace is the whole cluster.

        Raises:
            Exists: there is one of this name.
        """
        asked = {"name": name, "bindings": [{"role": r, "namespace": ns} for r, ns in bindings]}
        answer = self.transport.request("POST", f"{API}/users", body=codec.encode(asked))
        return codec.decode(answer.body, _reports().UserReport)

    def delete_user(self, name: str) -> None:
        """Remove a user with its tokens, at once."""
        self.transport.request("DELETE", f"{API}/users/{quote(name, safe='')}")

    def grant(self, name: str, role: str, namespace: str = "") -> UserReport:
        """Give a user a role in a namespace (empty: in the whole cluster), in place of the one there."""
        body = codec.encode({"role": role, "namespace": namespace})
        path = f"{API}/users/{quote(name, safe='')}/role"
        answer = self.transport.request("PUT", path, body=body, repeatable=True)
        return codec.decode(answer.body, _reports().UserReport)

    def revoke(self, name: str, namespace: str = "") -> UserReport:
        """Take a user's role in a namespace (empty: the cluster-wide one)."""
        path = f"{API}/users/{quote(name, safe='')}/role"
        answer = self.transport.request("DELETE", path, query={"namespace": namespace})
        return codec.decode(answer.body, _reports().UserReport)

    def create_token(
        self, user: str = "", *, description: str = "", lifetime_seconds: float = 0.0
    ) -> TokenReport:
        """A new token of a user (empty: the caller); its text is in this answer alone. A lifetime of 0
        has no end."""
        asked = {"user": user, "description": description, "lifetimeSeconds": lifetime_seconds}
        answer = self.transport.request("POST", f"{API}/tokens", body=codec.encode(asked))
        return codec.decode(answer.body, _reports().TokenReport)

    def tokens(self) -> tuple[TokenReport, ...]:
        """The caller's tokens (for admins, all), without their text."""
        return self._items("tokens", _reports().TokenReport)

    def revoke_token(self, identity: str) -> None:
        """Make the token of this id invalid from the next request on."""
        self.transport.request("DELETE", f"{API}/tokens/{quote(identity, safe='')}")

    def audit(
        self,
        *,
        namespace: str = "",
        kind: AnyKind | None = None,
        name: str = "",
        since: float = 0.0,
        limit: int = 0,
    ) -> tuple[Entry, ...]:
        """Audit events, oldest first: one for each write."""
        return self._entries("audit", namespace, kind, name, since=since, limit=limit)

    # Secrets: values can be set, and are given to tasks alone

    def secrets(self, namespace: str) -> tuple[SecretReport, ...]:
        """The secrets of a namespace: names and keys, never values."""
        return self._items(f"namespaces/{quote(namespace, safe='')}/secrets", _reports().SecretReport)

    def secret(self, namespace: str, name: str) -> SecretReport:
        """One secret: its keys, never its values.

        Raises:
            NotFound: there is none.
        """
        answer = self.transport.request("GET", _secret_path(namespace, name))
        return codec.decode(answer.body, _reports().SecretReport)

    def set_secret(
        self,
        namespace: str,
        name: str,
        values: Mapping[str, str | bytes],
        *,
        replace: bool = False,
        keep: bool = False,
    ) -> SecretReport:
        """Store values by their keys; with `replace` in place of all that the secret has, with `keep`
        beside its other keys.

        Raises:
            Exists: there is a secret of this name, and neither `replace` nor `keep` is set.
        """
        plain = {key: each.encode() if isinstance(each, str) else each for key, each in values.items()}
        body = codec.encode({"values": plain, "replace": replace, "keep": keep})
        path = _secret_path(namespace, name)
        answer = self.transport.request("PUT", path, body=body, repeatable=replace or keep)
        return codec.decode(answer.body, _reports().SecretReport)

    def delete_secret(self, namespace: str, name: str) -> None:
        """Remove a secret, at once. Tasks that have its values keep them until they end."""
        self.transport.request("DELETE", _secret_path(namespace, name))

    def rotate_secret_key(self) -> int:
        """Encrypt all secrets with a new key and remove the old one; the number of secrets."""
        answer = self.transport.request("POST", f"{API}/secrets/rotate-key")
        return codec.decode(answer.body, dict[str, int])["secrets"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _items(self, what: str, item: type[T]) -> tuple[T, ...]:
        document = codec.decode(self.transport.request("GET", f"{API}/{what}").body, dict[str, Any])
        return codec.convert(document["items"], tuple[item, ...])

    def _entries(
        self, what: str, namespace: str, kind: AnyKind | None, name: str, **query: Any
    ) -> tuple[Entry, ...]:
        from shoal.history.base import Entry

        asked = {"namespace": namespace, "kind": as_kind(kind).name if kind else "", "name": name}
        asked |= {key: value for key, value in query.items() if value}
        answer = self.transport.request("GET", f"{API}/{what}", query=asked)
        return codec.decode(answer.body, tuple[Entry, ...])


def _secret_path(namespace: str, name: str) -> str:
    return f"{API}/namespaces/{quote(namespace, safe='')}/secrets/{quote(name, safe='')}"


def _reports() -> Any:
    from shoal.client import reports

    return reports


def _token_file() -> str:
    path = os.environ.get("SHOAL_TOKEN_FILE", "")
    if not path:
        return ""
    with open(path, encoding="ascii") as file:  # noqa: PTH123 - pathlib is not needed otherwise
        return file.read().strip()
