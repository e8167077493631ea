"""What a hostile task tries against the kernel's settings, its limits, the platform and other jobs: as
root and as an unprivileged user, in both modes. Each attack runs for real."""

import json
import os
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from shoal.cluster.local.isolation import namespaces, privileges
from shoal.cluster.local.isolation import privileges as system_calls
from shoal.cluster.local.isolation.probe import probe

pytestmark = [pytest.mark.process, pytest.mark.slow]

MIB = 1 << 20
FILE_SYSTEM = tuple(name for name in namespaces.STRICT if name not in ("cpu", "memory", "pids"))
SETTINGS = [
    "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/file-max",
    "/proc/sys/kernel/panic", "/proc/sys/net/ipv4/ip_forward", "/proc/irq/default_smp_affinity",
    "/proc/sysrq-trigger", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state",
    "/sys/kernel/uevent_helper",
]  # fmt: skip
UNSHARE, ADD_KEY = {"x86_64": (272, 248), "aarch64": (97, 217)}.get(os.uname().machine, (0, 0))
NEWUSER, NEWCGROUP, NEWNS = 0x10000000, 0x02000000, 0x00020000

CALLS = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    return [result, ctypes.get_errno() if result < 0 else 0]
"""


@pytest.fixture(scope="module", autouse=True)
def _granted():
    lacking = {name: why for name, why in probe().items() if name in FILE_SYSTEM and why != "enforced"}
    if lacking:
        pytest.skip(f"this machine does not grant {lacking}")


@pytest.fixture(params=["default", "strict"])
def mode(request):
    return {"mode": request.param, "wanted": FILE_SYSTEM if request.param == "strict" else ()}


def python(bench, source, **fields):
    """The JSON that a Python program prints as a task."""
    task = bench.run(bench.user.python, "-I", "-c", CALLS + source, **fields)
    text = task.log().decode()
    assert task.exit()["exit_code"] == 0, (task.exit(), text)
    return json.loads(text.splitlines()[-1])


def test_each_kernel_setting_is_read_only(bench, mode):
    """Opened for writing, never written: a task that could would change this machine."""
    source = f"""
opened = []
for path in {[path for path in SETTINGS if Path(path).exists()]!r}:
    try:
        os.close(os.open(path, os.O_WRONLY))
        opened.append(path)
    except OSError:
        pass
print(json.dumps(opened))
"""
    assert python(bench, source, **mode) == []


def test_no_control_group_can_be_written(bench, mode):
    """Not where the machine has them mounted, in whatever hierarchy."""
    source = """
opened = []
for line in open("/proc/self/mountinfo"):
    fields = line.split()
    if fields[fields.index("-") + 1] not in ("cgroup", "cgroup2"):
        continue
    for name in ("cgroup.procs", "cgroup.kill", "memory.limit_in_bytes", "tasks"):
        try:
            os.close(os.open(fields[4] + "/" + name, os.O_WRONLY))
            opened.append(fields[4] + "/" + name)
        except OSError:
            pass
    try:
        os.mkdir(fields[4] + "/shoal-hostile")
        os.rmdir(fields[4] + "/shoal-hostile")
        opened.append(fields[4])
    except OSError:
        pass
print(json.dumps(opened))
"""
    assert python(bench, source, **mode) == []


NAMED = """
import socket
found = []
for path in PATHS:
    for name in ("", "core_pattern", "cgroup.procs", "tasks", "memory/tasks", "tun"):
        try:
            os.close(os.open(os.path.join(path, name), os.O_WRONLY | os.O_NONBLOCK))
            found.append(path + " written: " + name)
        except OSError:
            pass
    try:
        os.mkdir(path + "/shoal-hostile")
        os.rmdir(path + "/shoal-hostile")
        found.append(path + " changed")
    except OSError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect(SERVICE)
    found.append("the service answered")
except OSError:
    pass
print(json.dumps(found))
"""


@pytest.fixture
def services():
    """A folder in /run with the socket of a service of the machine."""
    if os.geteuid() != 0:
        pytest.skip("only root can put a service in /run")
    folder = Path("/run", f"shoal-test-{os.getpid()}")
    folder.mkdir()
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder}/socket")
            (folder / "socket").chmod(0o777)
            listener.listen()
            yield folder
    finally:
        shutil.rmtree(folder)


def test_what_a_job_names_opens_nothing_of_the_machine(bench, services, mode):
    """Working directories and environments in /proc, /sys, /dev or /run do not come back writable; in
    strict mode devices and services do not come back at all."""
    asked = [
        ("/proc/sys/kernel", "/dev/kmsg"),
        ("/sys/fs/cgroup", f"{services}/socket"),
        ("/sys", str(services)),
        (str(services), "/dev/net"),
    ]
    for cwd, environment in asked:
        source = f"SERVICE, PATHS = {f'{services}/socket'!r}, {[cwd, environment]!r}\n" + NAMED
        words = (bench.user.python, "-I", "-c", CALLS + source)
        task = bench.run(*words, cwd=cwd, env={"VIRTUAL_ENV": environment}, **mode)
        if mode["mode"] == "strict" and cwd == str(services):
            assert task.exit()["exit_code"] != 0, "it is out of sight"
            continue
        broken = json.loads(task.log().decode().splitlines()[-1])
        if mode["mode"] == "default":
            broken = [found for found in broken if found.startswith(("/proc", "/sys"))]
        assert broken == [], (cwd, environment)


def test_a_device_in_the_working_directory_cannot_be_opened(bench):
    if os.geteuid() != 0:
        pytest.skip("only root can make device files")
    os.mknod(bench.cwd / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    try:
        task = bench.run("sh", "-c", "head -c 1 zero | wc -c", mode="strict", wanted=FILE_SYSTEM)
        assert task.log().splitlines()[-1] == b"0"
    finally:
        (bench.cwd / "zero").unlink()


def test_no_user_or_control_group_namespace_is_granted(bench, mode):
    source = f"""
found = [call("unshare", flags) for flags in ({NEWUSER}, {NEWCGROUP}, {NEWUSER | NEWCGROUP | NEWNS})]
found.append(call("syscall", ctypes.c_long(435), None, ctypes.c_long(0)))
print(json.dumps(found))
"""
    *refused, clone3 = python(bench, source, **mode)
    assert refused == [[-1, 1]] * len(refused)
    assert clone3 == [-1, 38]


def test_threads_and_processes_still_start(bench, mode):
    source = """
import subprocess, threading
seen = []
thread = threading.Thread(target=lambda: seen.append(subprocess.run(["true"]).returncode))
thread.start()
thread.join()
print(json.dumps(seen))
"""
    assert python(bench, source, **mode) == [0]


def test_kernel_keyrings_are_out_of_reach(bench, mode):
    source = f"""
libc.syscall.restype = ctypes.c_long
print(json.dumps(call("syscall", ctypes.c_long({ADD_KEY}), b"user", b"shoal-test", b"x",
                      ctypes.c_size_t(1), ctypes.c_long(-4))))
"""
    assert python(bench, source, **mode) == [-1, 1]


def test_capabilities_are_few_and_nothing_is_gained(bench, mode):
    source = """
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps([int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")]
                 + [status["NoNewPrivs"].strip(), status["Seccomp"].strip()]))
"""
    *sets, no_new_privileges, filtered = python(bench, source, **mode)
    kept = sum(1 << number for number in privileges.KEPT)
    if bench.user.uid == 0:
        assert all(found & ~kept == 0 for found in sets)
        assert not sets[0] >> 13 & 1, "CAP_NET_RAW"
        assert not sets[0] >> 23 & 1, "CAP_SYS_NICE"
    else:
        assert sets[0] == sets[1] == 0
    assert (no_new_privileges, filtered) == ("1", "2")


def test_raw_sockets_and_deadline_scheduling_are_refused(bench, mode):
    source = """
import socket, struct
found = []
for family, protocol in ((socket.AF_PACKET, 0x300), (socket.AF_INET, 1)):
    try:
        socket.socket(family, socket.SOCK_RAW, protocol).close()
        found.append("granted")
    except PermissionError:
        found.append("refused")
libc.syscall.restype = ctypes.c_long
attributes = struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 30_000_000, 100_000_000, 100_000_000)
number = {"x86_64": 314, "aarch64": 274}[os.uname().machine]
found.append(call("syscall", ctypes.c_long(number), ctypes.c_long(0), attributes, ctypes.c_long(0)))
print(json.dumps(found))
"""
    assert python(bench, source, **mode) == ["refused", "refused", [-1, 1]]


def test_processes_are_limited(bench):
    """By a control group, or by RLIMIT_NPROC in the task's own user namespace; otherwise it is named."""
    source = """
children = []
try:
    for _ in range(100):
        pid = os.fork()
        if pid == 0:
            import time
            time.sleep(60)
        children.append(pid)
    reached = False
except BlockingIOError:
    reached = True
print(json.dumps([reached, len(children)]))
"""
    task = bench.start(bench.user.python, "-I", "-c", CALLS + source, limits={"pids": 40})
    task.exit()
    unenforced = [entry.partition(":")[0] for entry in task.record("started.json")["unenforced"]]
    reached, count = json.loads(task.log().decode().splitlines()[-1])
    if "pids" in unenforced:
        assert bench.user.uid == 0
        assert "pids" not in bench.parents
    else:
        assert reached
        assert count < 40


def test_the_limits_are_above_the_group_that_the_task_is_in(own_bench):
    if "memory" not in own_bench.parents:
        pytest.skip("no control groups for memory here")
    task = own_bench.start(
        "sh", "-c", "cat /proc/self/cgroup; sleep 60", limits={"memory_bytes": 64 * MIB}
    )
    task.started()
    outer = Path(own_bench.parents["memory"]) / task.folder.name
    task.says(f"/{task.folder.name}/task")
    limit = outer / "memory.limit_in_bytes"
    limit = limit if limit.exists() else outer / "memory.max"
    assert int(limit.read_text()) == 64 * MIB
    assert (outer / "cgroup.procs").read_text() == ""
    assert (outer / "task" / "cgroup.procs").read_text() != ""
    task.stop(grace=0)
    task.exit()
    assert not outer.exists()


def test_a_command_beside_it_is_held_alike(bench, mode):
    task = bench.start("sleep", "60", **mode)
    task.started()
    enter = Path(privileges.__file__).with_name("enter.py")
    words = [bench.user.python, "-I", "-S", str(enter), str(task.folder)]
    words += ["sh", "-c", "grep -E 'Seccomp:|NoNewPrivs' /proc/self/status"]
    done = subprocess.run(bench.user.words(words), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["NoNewPrivs:", "1", "Seccomp:", "2"]
    task.stop(grace=0)


def test_other_homes_of_the_owner_are_hidden(bench, mode):
    """Their keys, outputs and sockets; wherever they lie, also in the working directory."""
    places = [bench.folder("other"), bench.folder("cwd/inside")]
    for place in places:
        for part in ("keys", "output", "run"):
            folder = bench.folder(f"{place.relative_to(bench.base)}/{part}")
            (folder / "secret").write_text("secret")
            bench.user.own(folder / "secret")
    source = f"""
found = []
for place in {[str(place) for place in places]!r}:
    for part in ("keys", "output", "run"):
        try:
            found.append(open(place + "/" + part + "/secret").read())
        except OSError:
            pass
print(json.dumps(found))
"""
    hidden = tuple(str(place) for place in places)
    keep = (str(places[0]),)  # it would be below the task's own /var/tmp otherwise
    assert python(bench, source, other_homes=hidden, keep=keep, **mode) == []
    assert python(bench, source, keep=keep, **mode) == ["secret"] * 6


@pytest.mark.parametrize("part", ["decisions", "keys", "project"])
def test_no_part_of_a_home_is_opened_by_naming_it(bench, mode, part):
    """Whatever is in it, also what a later version adds."""
    folder = bench.folder(f"home/{part}")
    (folder / "secret").write_text("secret")
    bench.user.own(folder / "secret")
    for other in ((), (str(bench.folder("empty")),)):
        task = bench.run("cat", "secret", cwd=folder, other_homes=other, **mode)
        assert task.exit()["exit_code"] != 0
        assert b"secret" not in task.log().replace(str(folder).encode(), b"").replace(
            b"cat: secret", b""
        )


def test_the_other_path_of_a_home_on_a_bind_mount_is_no_way_in(bench, mode):
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    keys = bench.folder("home/keys")
    (keys / "secret").write_text("secret")
    bench.user.own(keys / "secret")
    alias, inner = bench.folder("alias"), bench.folder("inner")
    for source, target in ((bench.home, alias), (keys, inner)):
        subprocess.run(["mount", "--bind", str(source), str(target)], check=True)
    try:
        for cwd in (alias, alias / "keys", inner):
            task = bench.run("sh", "-c", "cat secret keys/secret", cwd=cwd, **mode)
            assert task.exit()["exit_code"] != 0, cwd
            assert b"secret" not in task.log().splitlines(), cwd
    finally:
        for target in (alias, inner):
            subprocess.run(["umount", str(target)], check=True)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_well_formed(machine):
    """Every jump stays within the program, and its end is a return."""
    program = system_calls.program(machine)
    instructions = [program[at : at + 8] for at in range(0, len(program), 8)]
    assert len(program) % 8 == 0
    for place, instruction in enumerate(instructions):
        true, false = instruction[2], instruction[3]
        assert place + 1 + max(true, false) <= len(instructions)
    assert instructions[-1][0] == 0x06


def test_an_unknown_machine_is_named():
    with pytest.raises(system_calls.Unsupported, match="riscv64"):
        system_calls.program("riscv64")
