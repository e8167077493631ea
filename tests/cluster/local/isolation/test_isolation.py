"""What a task sees and what it can do to others: real tasks, as root and as an unprivileged user."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from shoal.cluster.local.agent import task_folder
from shoal.cluster.local.isolation import namespaces
from shoal.cluster.local.isolation.probe import probe

pytestmark = [pytest.mark.process, pytest.mark.slow]

WAIT = "echo ready; while [ ! -e go ]; do sleep 0.02; done; "
FILE_SYSTEM = tuple(name for name in namespaces.STRICT if name not in ("cpu", "memory"))
"""Strict, on machines that delegate no control groups too."""


@pytest.fixture(scope="module", autouse=True)
def _granted():
    lacking = {name: why for name, why in probe().items() if name in FILE_SYSTEM and why != "enforced"}
    if lacking:
        pytest.skip(f"this machine does not grant {lacking}")


@pytest.fixture(params=["default", "strict"])
def mode(request):
    """Fields of a task."""
    return {"mode": request.param, "wanted": FILE_SYSTEM if request.param == "strict" else ()}


def output(bench, script, **fields):
    """What a shell script says as a task; it must succeed."""
    task = bench.run("sh", "-c", script, **fields)
    text = task.log().decode()
    assert task.exit()["exit_code"] == 0, (task.exit(), text)
    return text


def python(bench, source, **fields):
    """The JSON that a Python program prints as a task."""
    task = bench.run(bench.user.python, "-I", "-c", source, **fields)
    text = task.log().decode()
    assert task.exit()["exit_code"] == 0, (task.exit(), text)
    return json.loads(text.splitlines()[-1])


def test_everything_wanted_is_enforced(bench, mode):
    assert bench.start("true", **mode).started()["unenforced"] == []


def test_it_sees_only_its_own_processes(bench, mode):
    text = output(
        bench, "ls /proc | grep -c '^[0-9]'; echo $$; cat /proc/1/cmdline | tr '\\0' ' '", **mode
    )
    count, pid, first = text.splitlines()
    assert int(count) <= 6
    assert pid == "2"
    assert "supervisor.py" in first


def test_it_cannot_signal_what_is_not_its_own(bench, mode):
    outside = subprocess.Popen(bench.user.words(["sleep", "600"]))
    try:
        task = bench.start("sh", "-c", "echo ready; sleep 600", **mode).says("ready")
        neighbours = [outside.pid, os.getpid(), task.process.pid, *task.below()]
        kill = f"kill -9 {' '.join(map(str, neighbours))}; kill -9 1; kill -TERM 1; sleep 0.1"
        output(bench, f"({kill}) 2>&1; echo survived", **mode)
        assert outside.poll() is None
        assert task.process.poll() is None
        task.stop(grace=0)
    finally:
        outside.kill()
        outside.wait()


def test_its_init_cannot_be_looked_into(bench, mode):
    looks = (
        "import ctypes, json, os\n"
        "names = ['environ', 'root', 'cwd', 'exe', 'mem', 'maps', 'ns/mnt']\n"
        "names += [f'fd/{number}' for number in range(32)]\n"
        "found = {}\n"
        "for name in names:\n"
        "    try:\n"
        "        os.open('/proc/1/' + name, os.O_RDONLY)\n"
        "        found[name] = 'open'\n"
        "    except OSError as error:\n"
        "        found[name] = error.errno\n"
        "attach = 16\n"
        "found['trace'] = ctypes.CDLL(None).ptrace(attach, 1, 0, 0)\n"
        "print(json.dumps(found))"
    )
    found = python(bench, looks, **mode)
    assert found.pop("trace") == -1
    assert set(found.values()) <= {1, 2, 13}, found  # EPERM, ENOENT, EACCES


def test_temporary_folders_are_its_own(bench, mode):
    own = f"own-{bench.base.name[-8:]}"
    marks = [Path(folder, bench.base.name) for folder in ("/tmp", "/var/tmp", "/dev/shm")]
    shared = [path for path in marks if not path.exists()]
    for path in shared:
        path.touch()
    try:
        write = f"for d in /tmp /var/tmp /dev/shm; do echo mine > $d/{own}; done; "
        first = bench.start("sh", "-c", write + WAIT, **mode)
        first.says("ready")
        text = output(
            bench, "ls -A /tmp /dev/shm; stat -c %a /tmp /var/tmp /dev/shm; echo $TMPDIR", **mode
        )
        assert own not in text
        assert bench.base.name not in text.replace(str(bench.base), "")
        assert text.split()[-3:] == ["1777"] * 3
    finally:
        for path in shared:
            path.unlink()
    assert not Path("/tmp", own).exists()
    assert (first.folder / "private" / "tmp" / own).read_text() == "mine\n"


def test_of_the_home_it_sees_its_own_folders_only(bench, mode):
    secret = bench.folder("home/keys") / "secret"
    secret.write_text("secret")
    other = bench.task("true", name="other", job="other")
    for name in ("scratch", "output"):
        (other.path(name) / "private.txt").write_text("other")
    show = (
        "find $HOME_ -mindepth 1; touch $SHOAL_SCRATCH/a $SHOAL_OUTPUT/b; cat $HOME_/keys/secret; true"
    )
    text = output(bench, show, env={"HOME_": str(bench.home)}, name="own", **mode)
    seen = {
        line.removeprefix(f"{bench.home}/")
        for line in text.splitlines()
        if line.startswith(str(bench.home))
    }
    assert seen == {
        "nodes", "nodes/one", "nodes/one/work", "nodes/one/work/default.own",
        "nodes/one/work/default.own/scratch", "nodes/one/work/default.own/rendezvous",
        "output", "output/default", "output/default/job", "tasks",
    }  # fmt: skip
    assert "secret" not in text.replace("keys/secret", "")
    own = bench.tasks[-1]
    assert (own.path("scratch") / "a").exists()
    assert (own.path("output") / "b").exists()


def test_nothing_can_be_put_into_the_hidden_home(bench, mode):
    text = output(bench, "touch $HOME_/x 2>&1 || echo refused", env={"HOME_": str(bench.home)}, **mode)
    assert text.endswith("refused\n")
    assert not (bench.home / "x").exists()


def test_the_cover_cannot_be_taken_off(bench, mode):
    (bench.folder("home/keys") / "secret").write_text("secret")
    tricks = """
        umount $HOME_; umount -l $HOME_; umount -l /proc; umount -l /tmp
        mount --bind / /mnt; mount -t tmpfs none /mnt; mount -o remount,rw $HOME_
        nsenter --mount=/proc/1/ns/mnt true
        unshare --user --map-root-user --mount sh -c 'umount -l $HOME_; mount -t proc proc /mnt; cat $HOME_/keys/secret /mnt/1/root/etc/shadow'
        unshare --user --map-root-user --mount --pid --fork sh -c 'mount -o remount,rw / && echo rewritable; cat $HOME_/keys/secret'
        cat $HOME_/keys/secret /proc/1/root$HOME_/keys/secret
        chroot /proc/1/root cat $HOME_/keys/secret
        ls $HOME_
    """  # noqa: E501
    text = output(bench, f"({tricks}) 2>&1; true", env={"HOME_": str(bench.home)}, **mode)
    assert "secret\n" not in text.replace("keys/secret\n", "")
    assert "rewritable" not in text
    assert "keys" not in text.split("ls:")[-1].splitlines()


def test_the_owners_socket_is_out_of_reach_and_the_tasks_one_is_not(bench, mode):
    listeners = {}
    for name in ("api.sock", "tasks/api.sock"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(bench.home / name))
        os.chown(bench.home / name, bench.user.uid, bench.user.gid)
        listener.listen()
        listeners[name] = listener
    knock = (
        "import json, socket, sys\n"
        "found = []\n"
        "for path in sys.argv[1:]:\n"
        "    try: socket.socket(socket.AF_UNIX).connect(path); found.append('in')\n"
        "    except OSError as error: found.append(error.errno)\n"
        "print(json.dumps(found))"
    )
    paths = [str(bench.home / name) for name in listeners]
    task = bench.run(bench.user.python, "-c", knock, *paths, **mode)
    assert json.loads(task.log()) == [2, "in"]
    # a server that restarts makes a new socket, which a running task must see
    again = (
        "import os, socket, sys, time\n"
        "print('ready', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
    )
    task = bench.start(bench.user.python, "-c", again + knock, *paths, **mode).says("ready")
    (bench.home / "tasks" / "api.sock").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(bench.home / "tasks" / "api.sock"))
        os.chown(bench.home / "tasks" / "api.sock", bench.user.uid, bench.user.gid)
        listener.listen()
        (bench.cwd / "go").touch()
        task.exit()
    for listener in listeners.values():
        listener.close()
    assert json.loads(task.log().split(b"\n", 1)[1]) == [2, "in"]


def test_a_socket_tells_a_task_from_its_owner(bench, mode):
    address = bench.cwd / "listening"
    knock = (
        "import socket, os\n"
        "peer = socket.socket(socket.AF_UNIX); peer.connect(os.environ['ADDRESS'])\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    other = socket.socket(socket.AF_UNIX); other.connect(os.environ['ADDRESS'])\n"
        "    other.recv(1); os._exit(0)\n"
        "peer.recv(1)\n"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        address.chmod(0o777)
        listener.listen()
        listener.settimeout(30)
        task = bench.start(bench.user.python, "-c", knock, env={"ADDRESS": str(address)}, **mode)
        peers = [listener.accept()[0] for _ in range(2)]
        for peer in peers:
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            assert task_folder(int.from_bytes(credentials[:4], "little")) == str(task.folder)
        for peer in peers:
            peer.close()
        task.exit()
    assert task_folder(os.getpid()) is None


def test_system_v_memory_is_its_own(bench, mode):
    subprocess.run(["ipcmk", "-M", "4096"], check=True, stdout=subprocess.DEVNULL)
    try:
        assert "0x" not in output(bench, "ipcs -m", **mode)
    finally:
        subprocess.run(["ipcrm", "--all=shm"], check=True)


def test_it_stays_who_it_was(bench, mode):
    text = output(
        bench, "id -u; id -g; touch new; stat -c '%u %g' new . $SHOAL_SCRATCH; mkdir d; rm -r d", **mode
    )
    uid, gid = bench.user.uid, bench.user.gid
    assert text.splitlines() == [str(uid), str(gid), *[f"{uid} {gid}"] * 3]
    assert (bench.cwd / "new").stat().st_uid == uid


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
def test_the_working_directory_stays_wherever_it_is(own_bench, mode, place):
    base = Path(place, own_bench.base.name)
    base.mkdir(exist_ok=True)
    (base / "beside").mkdir()
    (base / "own").mkdir()
    (base / "own" / "train.py").write_text("print('trained'); open('result', 'w')")
    try:
        task = own_bench.run(own_bench.user.python, "train.py", cwd=base / "own", **mode)
        assert task.log() == b"trained\n", task.exit()
        assert (base / "own" / "result").exists()
        seen = output(own_bench, "ls ..", cwd=base / "own", **mode)
        assert seen.split() == ["own"]
    finally:
        subprocess.run(["rm", "-r", str(base)], check=True)


def test_the_home_inside_the_working_directory_is_hidden_too(own_bench, mode):
    (own_bench.folder("home/keys") / "secret").write_text("secret")
    text = output(own_bench, "ls; ls home; touch here", cwd=own_bench.base, **mode)
    assert text.split()[-3:] == ["nodes", "output", "tasks"]
    assert (own_bench.base / "here").exists()


def test_a_virtual_environment_in_tmp_and_a_script_named_there_can_be_used(own_bench, mode):
    folder = Path("/tmp", own_bench.base.name)
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "tool").write_text("#!/bin/sh\necho tool $1\n")
    (folder / "venv" / "bin" / "tool").chmod(0o755)
    (folder / "script").write_text("tool from-script")
    try:
        env = {"VIRTUAL_ENV": str(folder / "venv"), "PATH": f"{folder}/venv/bin:{os.defpath}"}
        task = own_bench.run("sh", str(folder / "script"), env=env, **mode)
        assert task.log() == b"tool from-script\n"
    finally:
        subprocess.run(["rm", "-r", str(folder)], check=True)


def test_working_in_tmp_itself_is_told_and_strict_refuses_it(own_bench):
    task = own_bench.start("sh", "-c", "ls", cwd="/tmp")
    assert [entry.split(":")[0] for entry in task.started()["unenforced"]] == ["tmp"]
    task.exit()
    refused = own_bench.run("sh", "-c", "ls", cwd="/tmp", mode="strict").exit()
    assert (refused["exit_code"], refused["reason"]) == (126, "StartFailed")
    assert "/tmp itself" in refused["message"]


@pytest.mark.parametrize("long", ["cwd", "command"])
def test_a_name_that_no_system_call_takes_is_the_jobs_own_failure(own_bench, mode, long):
    name = "/" + "\u00e4/" * 3000
    words, fields = (("true",), {"cwd": name}) if long == "cwd" else ((name,), {})
    ended = own_bench.run(*words, **fields, **mode).exit()
    assert ended["reason"] == "CommandNotFound", ended
    assert ended["exit_code"] in (126, 127)


@pytest.mark.parametrize("place", ["/dev", "/dev/shm", "/run", "/run/none"])
def test_a_working_directory_of_the_machines_is_no_failure_of_the_machine(own_bench, place):
    ended = own_bench.run("true", cwd=place, **STRICT).exit()
    assert (ended["reason"], ended["exit_code"]) in (("Exited", 0), ("CommandNotFound", 126)), ended


def test_strict_refuses_what_cannot_be_had(own_bench):
    ended = own_bench.run(
        "true", mode="strict", limits={"memory_bytes": 1 << 28}, cgroup_parents={}
    ).exit()
    assert (ended["exit_code"], ended["reason"]) == (126, "StartFailed")
    assert "memory: " in ended["message"]


def test_a_root_task_has_what_root_in_a_container_has(own_bench, mode):
    if os.geteuid() != 0:
        pytest.skip("this is about root")
    (own_bench.cwd / "theirs").touch()
    change = "import os, json; os.chown('theirs', 1234, 1234); os.chroot('/'); os.setuid(1234); print(1)"
    assert python(own_bench, change, **mode) == 1
    assert (own_bench.cwd / "theirs").stat().st_uid == 1234
    tricks = (
        "mknod x b 254 0",
        "mount -t tmpfs none /mnt",
        "hostname other",
        "dmesg -n 1",
        "nsenter -t 1 -m true",
    )
    for trick in tricks:
        assert own_bench.run("sh", "-c", trick, **mode).exit()["exit_code"] != 0, trick


STRICT = {"mode": "strict", "wanted": FILE_SYSTEM}


def test_strict_writes_nowhere_but_in_its_own_folders(bench):
    tries = (
        "import json, os, sys\n"
        "found = []\n"
        "for path in sys.argv[1:]:\n"
        "    try: os.close(os.open(path, os.O_WRONLY | os.O_APPEND)); found.append(path)\n"
        "    except OSError: pass\n"
        "    mark = path + '/shoal-was-here'\n"
        "    try: os.close(os.open(mark, os.O_WRONLY | os.O_CREAT)); found.append(path)\n"
        "    except OSError: pass\n"
        "print(json.dumps(found))"
    )
    refused = [
        "/", "/etc", "/etc/passwd", "/usr/bin", "/var", "/sys", "/sys/fs/cgroup",
        "/proc/sys/kernel/panic", "/proc/sysrq-trigger", bench.user.python, str(bench.home),
        *(f"{parent}/cgroup.procs" for parent in bench.parents.values()),
        str(Path(__file__).parents[4] / "src" / "shoal"), str(Path(__file__).parents[4]),
    ]  # fmt: skip
    allowed = [str(bench.cwd), "/tmp", "/var/tmp", "/dev/shm", "/dev/null", "/run"]
    own = bench.task("true", name="own")
    allowed += [str(own.path("scratch")), str(own.path("output"))]
    task = bench.task(bench.user.python, "-I", "-c", tries, *refused, *allowed, name="own2", **STRICT)
    task.spawn().exit()
    expected = set(allowed) - {str(own.path("scratch"))}  # another task's
    assert set(json.loads(task.log())) == expected


def test_strict_has_the_plainest_devices_only(bench):
    use = "echo x > /dev/null; head -c 3 /dev/urandom | wc -c; head -c 1 /dev/zero | wc -c"
    text = output(bench, f"ls /dev /run; {use}", **STRICT)
    expected = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin"}
    assert expected <= set(text.split())
    assert len(text.split()) < 25
    terminals = "import json, os, multiprocessing as m; m.Lock(); print(json.dumps(len(os.openpty())))"
    assert python(bench, terminals, **STRICT) == 2


def test_strict_gains_nothing_by_programs_with_privileges(bench):
    assert "NoNewPrivs:\t1" in output(bench, "cat /proc/self/status", **STRICT)


def test_strict_shoal_cannot_be_changed_from_a_working_directory_around_it(own_bench):
    root = Path(__file__).parents[4]
    script = "touch src/shoal/shoal-was-here; touch shoal-was-here && rm shoal-was-here"
    task = own_bench.run("sh", "-c", script, cwd=root, **STRICT)
    assert task.exit()["exit_code"] == 0
    assert b"Read-only" in task.log()
    assert not (root / "src" / "shoal" / "shoal-was-here").exists()


def test_a_link_that_comes_in_place_of_a_kept_folder_leads_nowhere(own_bench):
    """Who shares a folder with a task that is being started must not choose what it sees."""
    (own_bench.folder("home/keys") / "secret").write_text("secret")
    for number in range(20):
        place = own_bench.base / f"place{number}"
        place.mkdir()
        task = own_bench.task("sh", "-c", "cat secret; touch written", cwd=place, **STRICT)
        task.spawn()
        time.sleep(number * 0.001)
        place.rename(own_bench.base / f"gone{number}")
        place.symlink_to(own_bench.home / "keys")
        task.exit()
        assert b"secret\n" not in task.log().replace(b"cat: secret", b"")
        assert not (own_bench.home / "keys" / "written").exists()
