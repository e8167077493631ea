"""Two jobs side by side, one hostile: a home, a victim, the attacks, and what came of them.

`play` does it in this process. As a program (`python -m tests.scenarios.hostile FOLDER MODE`) it does it
for whoever runs it and prints the account, so that a test that root runs can do it as somebody else.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.cluster.local.isolation import namespaces
from shoal.objects.job import FINISHED, Job
from shoal.objects.kinds import JOB
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.ranges import IndexMap
from shoal.testing.local import nodes, wait_until
from tests.scenarios.hostile_tasks import CLIENT, GREEDY, HOSTILE, VICTIM
from tests.scenarios.standing import PATIENCE_SECONDS, Standing, python, role

__all__ = ["Account", "play"]

MEMORY_BYTES = 128 << 20
ASK = {"cpu": "200m", "memory": str(MEMORY_BYTES)}


@dataclass
class Account:
    """What came of it."""

    mode: str
    states: dict[str, str]
    """Isolation to `enforced` or why not, as the node says."""
    refused: str = ""
    """Why nothing was started, in strict mode."""
    attacks: list[dict[str, Any]] = field(default_factory=list)
    harm: list[str] = field(default_factory=list)
    """What happened to the victim, the platform or the machine."""
    unenforced: list[str] = field(default_factory=list)
    """What the attacker's task lists as not enforced."""

    @property
    def promised(self) -> set[str]:
        """The isolations that held here."""
        wanted = namespaces.STRICT if self.mode == "strict" else namespaces.DEFAULT
        return {name for name in wanted if self.states[name] == "enforced"}

    @property
    def broken(self) -> list[str]:
        """Attacks that succeeded although what forbids them was promised."""
        return [
            f"it {attack['name']}: {attack['detail']}"
            for attack in self.attacks
            if attack["broken"] and self.promised.issuperset(attack["isolations"])
        ]


def play(folder: Path, mode: str) -> Account:
    """Bring up a home in the folder, let both jobs run, and take it down."""
    declared = nodes(one={"cpu": CpuMillis(4000), "memory": Bytes(2 << 30), "gpus": ("0", "1")})
    with Standing(folder / "home", declared) as standing:
        states = dict(next(iter(standing.local.cluster.nodes())).isolations)
        account = Account(mode, states)
        secret = secrets.token_hex(16)
        victim = _victim(standing, mode, secret)
        if mode == "strict" and any(state != "enforced" for state in states.values()):
            refusal = standing.until(victim, lambda job: job.status.refusal is not None).status.refusal
            assert refusal is not None
            account.refused = f"{refusal.reason}: {refusal.message}"
            return account
        _fight(standing, account, victim, secret)
    return account


def _victim(standing: Standing, mode: str, secret: str) -> Job:
    server = role(
        name="victim", command=python(VICTIM), env={"SECRET": secret}, resources=ASK,
        ports=[{"name": "web", "port": 8080}],
    )  # fmt: skip
    client = role(name="client", command=python(CLIENT), resources=ASK)
    return standing.job(
        server, client, isolation=mode, metadata={"name": "victim", "namespace": "team-a"}
    )


def _fight(standing: Standing, account: Account, victim: Job, secret: str) -> None:
    output = standing.output(victim)
    wait_until((output / "facts").exists, PATIENCE_SECONDS, "the victim is up")
    wait_until((output / "served").exists, PATIENCE_SECONDS, "the victim serves its client")
    facts = json.loads((output / "facts").read_text())
    mine = [standing.processes(victim, name) for name in ("victim", "client")]
    pids = [pid for task in mine for pid in (task.command_pid, task.supervisor_pid)]
    pids += [standing.local.pid("server"), standing.local.pid("one")]
    mark = f"shoal-hostile-{secrets.token_hex(4)}"
    with socket.create_server(("127.0.0.1", 0)) as machine:
        aim = {
            "secret": [secret[:9], secret[9:]], "mark": mark, "pids": pids,
            "home": str(standing.home.path), "port": facts["port"], "uid": facts["uid"],
            "machine_port": machine.getsockname()[1], "hostname": socket.gethostname(),
            "pid_namespace": str(Path("/proc/self/ns/pid").readlink()),
            "folders": [facts["scratch"], facts["output"], facts["rendezvous"],
                        str(standing.home.logs / "team-a"), str(standing.home.keys)],
            "sockets": [str(standing.home.api_socket), str(standing.home.node("one").socket)],
            "shared": [sys.prefix, str(Path(json.__file__).parent), str(Path(__file__).parent)],
        }  # fmt: skip
        program = python(HOSTILE, json.dumps(aim))
        hostile = standing.job(
            role(name="hostile", command=program, resources=ASK),
            isolation=account.mode,
            metadata={"name": "hostile", "namespace": "team-b"},
        )
        results = standing.output(hostile) / "results"
        wait_until(
            lambda: results.exists() or standing.look(hostile).status.phase in FINISHED,
            PATIENCE_SECONDS,
            "the attacks are over",
        )
        if results.exists():
            account.unenforced = [w for t in standing.tasks(hostile) for w in t.unenforced]
            (standing.output(hostile) / "seen").touch()
        ended = standing.finished(hostile)
    if not results.exists():
        account.harm.append(f"the attacker itself failed: {ended.status} {standing.log(hostile)!r}")
        return
    account.attacks = json.loads(results.read_text())
    account.harm += [f"the test itself is wrong: {a['wrong']}" for a in account.attacks if a["wrong"]]
    greedy = standing.job(
        role(command=python(GREEDY, str(6 * MEMORY_BYTES)), resources=ASK),
        array={"indices": "0-2", "parallelism": 1},
        isolation=account.mode,
        metadata={"name": "greedy", "namespace": "team-b"},
    )
    codes = standing.finished(greedy).status.roles[0].exit_codes
    for index, code in IndexMap.parse(codes).items():
        what = ("at once", "in many processes", "in shared memory")[index]
        account.attacks.append({
            "name": f"takes six times its memory {what}", "isolations": ["memory", "tmp"],
            "broken": code == "9", "detail": f"exit code {code}",
        })  # fmt: skip
    _look_for_harm(standing, account, victim, pids)


def _look_for_harm(standing: Standing, account: Account, victim: Job, pids: list[int]) -> None:
    now = standing.look(victim)
    if (now.status.phase, now.status.attempt) != ("Running", 1):
        account.harm.append(f"the victim is {now.status}: {standing.log(victim)!r}")
        return
    tasks = [standing.processes(victim, name) for name in ("victim", "client")]
    after = [pid for task in tasks for pid in (task.command_pid, task.supervisor_pid)]
    after += [standing.local.pid("server"), standing.local.pid("one")]
    if after != pids:
        account.harm.append(f"processes changed: {pids} to {after}")
    if "network" in account.promised and b"TRESPASSED" in standing.log(victim):
        account.harm.append(standing.log(victim).decode(errors="replace"))
    for name in ("ticks", "served"):
        file = standing.output(victim) / name
        before = file.stat().st_size
        wait_until(
            lambda file=file, before=before: file.stat().st_size > before, what=f"the victim's {name}"
        )
    if socket.gethostname() == "hostile":
        account.harm.append("the machine has another name")
    for job in standing.client.list(JOB).records:
        if job.object.spec.cancelled:
            account.harm.append(f"{job.object.metadata.name} was cancelled")


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(play(Path(sys.argv[1]), sys.argv[2]))))
