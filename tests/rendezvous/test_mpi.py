from __future__ import annotations

import ctypes.util
import re
import shutil
import sys

import pytest

from shoal.objects.job import Resources, Role
from shoal.rendezvous.mpi import HOSTFILE, RSH
from tests.support.require import require

from .conftest import Group, a_job, told_of

TWO_ROLES = (
    Role(name="worker", replicas=2, command=("hold",)),
    Role(name="launcher", command=("mpirun",)),
)

# what `shoal.client.rsh` does, but for the way to the task: every task is on this machine
LOCAL_RSH = """\
#!/bin/sh
export TASK="$1" TMPDIR="$0.$1"; shift; mkdir "$TMPDIR"; exec /bin/sh -c "$*"
"""
"""Tasks have a /tmp of their own; daemons that share one now and then make the same folder at once."""

PROGRAM = """
import ctypes, os, sys
mpi = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
def handle(name):
    return ctypes.addressof(ctypes.c_char.in_dll(mpi, name))
world, integer, addition = map(handle, ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum"))
mpi.MPI_Init(None, None)
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(ctypes.c_void_p(world), ctypes.byref(rank))
mpi.MPI_Comm_size(ctypes.c_void_p(world), ctypes.byref(size))
mine = ctypes.c_int(rank.value + 1)
mpi.MPI_Allreduce(
    ctypes.byref(mine), ctypes.byref(total), 1, ctypes.c_void_p(integer), ctypes.c_void_p(addition),
    ctypes.c_void_p(world),
)
where = os.environ.get("TASK", "launcher")
print(f"rank {rank.value} of {size.value} sum {total.value} beside {where}", flush=True)
mpi.MPI_Finalize()
"""


def test_one_role_launches_from_its_first_task() -> None:
    job = a_job("mpi", Role(replicas=3, command=("mpirun",)))
    launcher, host, _ = told_of(job, ("worker", 0), ("worker", 1), ("worker", 4))
    assert launcher.files[HOSTFILE] == "localhost slots=1\nworker-1 slots=1\nworker-4 slots=1\n"
    assert launcher.files[RSH].startswith("#!/bin/sh\n")
    assert launcher.env["OMPI_MCA_plm_rsh_agent"] == "/bin/sh $(SHOAL_RENDEZVOUS)/rsh"
    assert launcher.env["OMPI_MCA_orte_default_hostfile"] == "$(SHOAL_RENDEZVOUS)/hostfile"
    assert (launcher.command, launcher.env["K_MPI_JOB_ROLE"]) == ((), "launcher")
    assert host.command[0] == "/bin/sh"
    assert (host.files, host.env["K_MPI_JOB_ROLE"]) == ({}, "worker")


RANK = r"rank \d of \d sum \d beside [\w-]+?(?=rank \d|$|\s)"
"""What each says: mpirun may pass on the end of a line after the next one."""


def ranks(text: str) -> list[str]:
    """What each has said."""
    return sorted(re.findall(RANK, text))


def test_a_launcher_of_its_own_is_no_host() -> None:
    launcher, first, second = told_of(
        a_job("mpi", *TWO_ROLES), ("launcher", 0), ("worker", 0), ("worker", 1)
    )
    assert launcher.files[HOSTFILE] == "worker-0 slots=1\nworker-1 slots=1\n"
    assert first.command == second.command == ()  # their role says what they do


def test_workers_without_a_command_wait() -> None:
    job = a_job("mpi", Role(name="launcher", command=("mpirun",)), Role(name="worker"))
    assert told_of(job, ("launcher", 0), ("worker", 0))[1].command[0] == "/bin/sh"


@pytest.mark.parametrize(
    ("role", "slots"),
    [
        (Role(replicas=2, resources=Resources(gpu=4)), 4),
        (Role(replicas=2, env={"SHOAL_SLOTS": "3"}, resources=Resources(gpu=4)), 3),
        (Role(replicas=2, env={"SHOAL_SLOTS": "many"}), 1),
    ],
)
def test_slots(role: Role, slots: int) -> None:
    launcher = told_of(a_job("mpi", role), ("worker", 0), ("worker", 1))[0]
    assert launcher.files[HOSTFILE] == f"localhost slots={slots}\nworker-1 slots={slots}\n"


def test_only_tasks_of_one_machine_are_kept_from_its_other_interfaces() -> None:
    near, far = (
        told_of(a_job("mpi"), ("worker", 0), host=host)[0].env for host in ("127.0.0.1", "10.0.0.1")
    )
    assert {name for name in near if name not in far} == {
        "OMPI_MCA_oob_tcp_if_include",
        "OMPI_MCA_btl_tcp_if_include",
        "OMPI_MCA_hwloc_base_binding_policy",
        "OMPI_MCA_mpi_yield_when_idle",
    }


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("roles", [(Role(replicas=3, command=("mpirun",)),), TWO_ROLES])
def test_a_real_mpirun(group: Group, roles: tuple[Role, ...]) -> None:
    library = ctypes.util.find_library("mpi")
    if shutil.which("mpirun") is None or library is None:
        require("mpi", "no mpirun is installed (openmpi-bin)")
    members = [(role.name, index) for role in roles for index in range(role.replicas)]
    job = a_job("mpi", *roles)
    program = group.folder / "program.py"
    program.write_text(PROGRAM)
    launcher_first = sorted(members, key=lambda member: member[0] != "launcher")
    rsh = group.folder / RSH
    rsh.write_text(LOCAL_RSH)
    rsh.chmod(0o700)
    group.start(
        job, launcher_first,
        env={"OMPI_MCA_plm_rsh_agent": str(rsh)},
        command=["mpirun", "-n", "2", sys.executable, str(program), library],
    )  # fmt: skip
    launcher = group.processes[0]
    text, _ = launcher.communicate(timeout=90.0)
    assert launcher.returncode == 0, text
    hosts = ("launcher", "worker-1") if len(roles) == 1 else ("worker-0", "worker-1")
    assert ranks(text) == [f"rank {rank} of 2 sum 3 beside {host}" for rank, host in enumerate(hosts)]
