"""Open MPI: a launcher, hosts, and a remote shell that runs commands beside the hosts' tasks.

The launcher is the task of the role `launcher`, its hosts are the workers; in a job of one role it is
the first task, which is a host too. Its command calls `mpirun -n N program` and nothing else is needed:
the hostfile and the remote shell are found through `OMPI_MCA_*`. The shell (`shoal.client.rsh`) asks
the platform to run `orted` beside the task, so that every rank lives in the isolation and under the
limits of its own task, and ends with it.

Hosts are called `ROLE-INDEX` in the hostfile: names for the remote shell, never resolved. A host
has a slot per device that it asks for, and one if it asks for none; `SHOAL_SLOTS` in its role's `env`
says otherwise.

Variables and behaviour are Open MPI 4's (Debian 12).
"""

from __future__ import annotations

from shoal.objects.task import RENDEZVOUS_FOLDER, Endpoint, TaskBootstrap
from shoal.rendezvous.group import Group

HOSTFILE = "hostfile"
RSH = "rsh"

_WAIT = ("/bin/sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait")
"""What a host does: be there until it is stopped."""

_EVERYWHERE = {
    # daemons of one machine would share files that belong to one of them
    "PMIX_MCA_gds": "hash",
}

_RSH_SCRIPT = """\
#!/bin/sh
# mpirun calls this as: rsh HOST COMMAND...
exec "${SHOAL_PYTHON:-python3}" -P -m shoal.client.rsh "$@"
"""


def render(group: Group, member: Endpoint) -> TaskBootstrap:
    """Open MPI's contract for one task."""
    launcher = group.first
    role = "launcher" if member == launcher else "worker"
    if member != launcher:
        alone = group.role(member.role).command and member.role != launcher.role
        # a worker role may have a command of its own; in a job of one role it is the launcher's
        return TaskBootstrap(env={"K_MPI_JOB_ROLE": role, **_EVERYWHERE}, command=() if alone else _WAIT)
    shared_role = len(group.by_role) == 1
    hosts = [each for each in group.members if shared_role or each != launcher]
    env = {
        "K_MPI_JOB_ROLE": role,
        **_EVERYWHERE,
        "OMPI_MCA_orte_default_hostfile": f"{RENDEZVOUS_FOLDER}/{HOSTFILE}",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        # the daemons look for its first word too, on hosts that have no such file
        "OMPI_MCA_plm_rsh_agent": f"/bin/sh {RENDEZVOUS_FOLDER}/{RSH}",
        # only the launcher has the remote shell, and ending it ends what it started
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        # in its own user namespace a task may look like root
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # which namespaces do not allow between processes
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
        **_sharing_a_machine(group),
    }
    lines = [f"{_host(group, each)} slots={_slots(group, each)}\n" for each in hosts]
    return TaskBootstrap(env=env, files={HOSTFILE: "".join(lines), RSH: _RSH_SCRIPT})


def _sharing_a_machine(group: Group) -> dict[str, str]:
    """Hosts that are tasks of one machine: they meet over the loopback, and none may bind itself to
    the first cores, as each would."""
    if not group.loopback:
        return {}
    return {
        "OMPI_MCA_oob_tcp_if_include": group.loopback,
        "OMPI_MCA_btl_tcp_if_include": group.loopback,
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }


def _host(group: Group, member: Endpoint) -> str:
    return "localhost" if member == group.first else f"{member.role}-{member.index}"


def _slots(group: Group, member: Endpoint) -> int:
    role = group.role(member.role)
    said = role.env.get("SHOAL_SLOTS", "")
    return int(said) if said.isdecimal() and int(said) > 0 else max(1, role.resources.gpu)
