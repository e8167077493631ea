"""What the two jobs of `test_hostile` run: a victim that guards its things, and one that wants them.

Sources of programs, standard library only: tasks run them with `python -I -S -c`.
"""

__all__ = ["CLIENT", "GREEDY", "HOSTILE", "VICTIM"]

VICTIM = r"""
import ctypes, json, os, select, socket, sys, time

out, secret = os.environ["SHOAL_OUTPUT"], os.environ["SECRET"]
places = ["/tmp/secret", "/var/tmp/secret", "/dev/shm/secret", os.environ["SHOAL_SCRATCH"] + "/secret",
          out + "/secret"]
for place in places:
    with open(place, "w") as file:
        file.write(secret)
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(0x5EC1, 4096, 0o1666)  # IPC_CREAT
shared = ctypes.c_void_p(libc.shmat(segment, None, 0)) if segment >= 0 else None
if shared is not None:
    ctypes.memmove(shared, secret.encode(), len(secret))
server = socket.create_server(("127.0.0.1", int(os.environ["SHOAL_PORT_WEB"])))
named = socket.socket(socket.AF_UNIX)
named.bind("/tmp/victim.sock")
named.listen()
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\0victim-" + os.environ["SHOAL_JOB_UID"])
abstract.listen()
with open(out + "/facts.new", "w") as file:
    json.dump({
        "port": int(os.environ["SHOAL_PORT_WEB"]), "scratch": os.environ["SHOAL_SCRATCH"], "output": out,
        "rendezvous": os.environ["SHOAL_RENDEZVOUS"], "token": os.environ.get("SHOAL_TOKEN_FILE", ""),
        "uid": os.environ["SHOAL_JOB_UID"],
    }, file)
os.rename(out + "/facts.new", out + "/facts")
canary = bytes(range(256)) * 65536
count = 0
while True:
    ready = select.select([server, named, abstract], [], [], 0.05)[0]
    if server in ready:
        peer = server.accept()[0]
        peer.sendall(b"the victim's\n")
        peer.close()
    for trespassed in (named, abstract):
        if trespassed in ready:
            trespassed.accept()
            print("TRESPASSED", trespassed.getsockname(), flush=True)
    for place in places:
        with open(place) as file:
            assert file.read() == secret, place
    assert canary == bytes(range(256)) * 65536
    count += 1
    with open(out + "/ticks", "a") as file:
        file.write("tick\n")
"""

CLIENT = r"""
import json, os, socket, time

(server,) = json.loads(os.environ["SHOAL_TASKS"])["victim"]
while True:
    try:
        with socket.create_connection((server["host"], server["ports"]["web"]), 5.0) as peer:
            assert peer.recv(99) == b"the victim's\n"
        with open(os.environ["SHOAL_OUTPUT"] + "/served", "a") as file:
            file.write("served\n")
    except ConnectionRefusedError:
        pass
    time.sleep(0.05)
"""

HOSTILE = r"""
import ctypes, glob, json, os, signal, socket, stat, subprocess, sys, time

aim = json.loads(sys.argv[1])
secret = "".join(aim["secret"]).encode()  # in two parts, so that our own command line does not hold it
libc = ctypes.CDLL(None, use_errno=True)
results = []


def attack(name, isolations):
    def run(body):
        found, wrong = None, ""
        try:
            found = body()
            detail = "" if found is None else str(found)[:300]
        except OSError as error:  # it was refused
            detail = str(error)
        except BaseException as error:
            detail = wrong = f"{type(error).__name__}: {error}"
        results.append({"name": name, "isolations": isolations, "broken": bool(found), "wrong": wrong,
                        "detail": detail})
        return body
    return run


def check(result):
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def holds_secret(path):
    try:
        with open(path, "rb") as file:
            return secret in file.read(1 << 20)
    except OSError:
        return False


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def others():
    me = {os.getpid(), 1}
    return [pid for pid in pids() if pid not in me]


def opened_for_writing(paths):
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY))
        except OSError:
            continue
        return path


def written(folders):
    for folder in folders:
        path = os.path.join(folder, aim["mark"])
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        except OSError:
            continue
        os.unlink(path)
        return path


def readable(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


@attack("sees processes that are not its own", ["processes"])
def _():
    return [pid for pid in others() if os.path.exists(f"/proc/{pid}/cmdline")]


@attack("reads an environment with the secret", ["processes"])
def _():
    return [pid for pid in pids() if holds_secret(f"/proc/{pid}/environ")]


@attack("reads the victim's memory or files by its process", ["processes"])
def _():
    return [p for pid in aim["pids"] for p in (f"/proc/{pid}/root/tmp/secret", f"/proc/{pid}/cwd/secret",
            f"/proc/{pid}/mem", f"/proc/{pid}/maps") if os.path.exists(p) and holds_secret(p)]


@attack("looks into its own init, which is the platform's", ["processes"])
def _():
    return [p for p in ("/proc/1/environ", "/proc/1/mem", "/proc/1/fd/0", "/proc/1/root/etc")
            if readable(p)]


@attack("traces another process", ["processes", "privileges"])
def _():
    for pid in [*aim["pids"], 1]:
        if libc.ptrace(16, pid, None, None) == 0:  # PTRACE_ATTACH
            libc.ptrace(17, pid, None, None)
            return pid


@attack("enters the namespaces of another process", ["processes", "privileges"])
def _():
    for pid in [*aim["pids"], 1]:
        for kind in ("mnt", "pid", "net", "ipc"):
            try:
                with open(f"/proc/{pid}/ns/{kind}") as file:
                    if os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}"):
                        continue
                    check(libc.setns(file.fileno(), 0))
            except OSError:
                continue
            return pid, kind


@attack("signals them", ["processes"])
def _():
    if aim["pid_namespace"] == os.readlink("/proc/self/ns/pid"):
        return "it shares the machine's processes"
    for pid in aim["pids"]:  # whether any was hit is seen from outside
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(-1, signal.SIGCONT)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@attack("finds the secret in a temporary folder", ["tmp"])
def _():
    places = ["/tmp/secret", "/var/tmp/secret", "/dev/shm/secret"]
    return [place for place in places if os.path.exists(place)]


@attack("reaches the victim's socket in /tmp", ["tmp"])
def _():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("/tmp/victim.sock")
        return "connected"


@attack("reads the victim's folders", ["home"])
def _():
    return [path for folder in aim["folders"] for path in [folder, *glob.glob(folder + "/*")]
            if os.path.exists(path)]


@attack("finds anything in the home that is not its own", ["home"])
def _():
    own = [os.environ[n] for n in ("SHOAL_SCRATCH", "SHOAL_OUTPUT", "SHOAL_RENDEZVOUS")]
    own += [os.path.dirname(os.environ["SHOAL_API"].removeprefix("unix://"))]
    found = []
    for folder, names, files in os.walk(aim["home"]):
        for name in files:
            path = os.path.join(folder, name)
            if not any(path.startswith(place + "/") for place in own):
                found.append(path)
    return found


@attack("reaches the sockets of server and agents", ["home"])
def _():
    for path in aim["sockets"]:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(path)
            except OSError:
                continue
            return path


@attack("puts something into the home or takes the tasks' socket away", ["home"])
def _():
    api = os.environ["SHOAL_API"].removeprefix("unix://")
    for step in (lambda: os.rename(api, api + ".gone"), lambda: os.unlink(api),
                 lambda: os.mkdir(os.path.dirname(api) + "/mine")):
        try:
            step()
        except OSError:
            continue
        return api
    home = aim["home"]
    return written([home, home + "/keys", home + "/run", home + "/nodes"])


@attack("attaches the victim's System V memory", ["ipc"])
def _():
    segment = check(libc.shmget(0x5EC1, 4096, 0o666))
    return f"segment {segment}"


@attack("reaches the victim's abstract socket", ["network"])
def _():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(b"\0victim-" + aim["uid"].encode())
        return "connected"


@attack("reaches the victim's port", ["network"])
def _():
    with socket.create_connection(("127.0.0.1", aim["port"]), 2.0) as sock:
        return sock.recv(99)


@attack("reaches a service of the machine, or the world", ["network"])
def _():
    with open("/proc/net/dev") as file:
        there = [line.split(":")[0].strip() for line in file if ":" in line]
    if there != ["lo"]:
        return there
    with socket.create_connection(("127.0.0.1", aim["machine_port"]), 2.0):
        return aim["machine_port"]


@attack("keeps the victim's port occupied", ["network"])
def _():
    ours = socket.create_server(("127.0.0.1", aim["port"]))  # in a network of its own it may
    ours.listen()
    globals()["_kept"] = ours
    return None


@attack("mounts", ["privileges"])
def _():
    os.makedirs("/tmp/over", exist_ok=True)
    check(libc.mount(b"none", b"/tmp/over", b"tmpfs", 0, None))
    return "tmpfs"


@attack("uncovers what lies below a cover", ["privileges"])
def _():
    for path in (b"/tmp", b"/proc", aim["home"].encode()):
        if libc.umount2(path, 2) == 0:
            return path


@attack("mounts in a user namespace, and sees more there", ["privileges"])
def _():
    child = os.fork()
    if child == 0:
        try:
            check(libc.unshare(0x10000000 | 0x00020000))
            for path in (b"/tmp", b"/proc", aim["home"].encode(), b"/dev/shm"):
                libc.umount2(path, 2)
            sought = ["/tmp/secret", "/dev/shm/secret", aim["home"] + "/store.db"]
            os._exit(9 if any(map(os.path.exists, sought)) else 0)
        except BaseException:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@attack("breaks out of its root", ["privileges"])
def _():
    os.makedirs("/tmp/jail", exist_ok=True)
    child = os.fork()
    if child == 0:
        try:
            root = os.open("/", os.O_RDONLY)
            os.chroot("/tmp/jail")
            os.fchdir(root)
            for _ in range(50):
                os.chdir("..")
            os.chroot(".")
            os._exit(9 if os.path.exists("/tmp/secret") else 0)
        except BaseException:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@attack("sets the machine's clock", ["privileges"])
def _():
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return True


@attack("opens the machine's disks and memory", ["privileges"])
def _():
    found = []
    with open("/proc/partitions") as file:
        devices = [line.split()[:2] for line in file.readlines()[2:] if line.strip()]
    for number, (major, minor) in enumerate([*devices, ("1", "1")]):
        path = f"/tmp/node{number}"
        kind = stat.S_IFCHR if (major, minor) == ("1", "1") else stat.S_IFBLK
        try:
            os.mknod(path, kind | 0o600, os.makedev(int(major), int(minor)))
            os.close(os.open(path, os.O_RDONLY))
        except OSError:
            continue
        found.append((major, minor))
    return found


@attack("loads a module", ["privileges"])
def _():
    if libc.syscall(175, b"", 0, b"") == 0:  # init_module
        return "module"


@attack("takes its limits off, or tightens the victim's", ["memory", "cpu", "privileges"])
def _():
    names = ("cgroup.procs", "tasks", "memory.limit_in_bytes", "memory.max", "cpu.shares", "cpu.max",
             "cpu.weight", "cpu.cfs_quota_us", "freezer.state", "cgroup.freeze", "cgroup.kill",
             "pids.max", "release_agent")
    paths = []
    for folder, _, files in os.walk("/sys/fs/cgroup"):
        paths += [os.path.join(folder, name) for name in files if name in names]
    return opened_for_writing(paths)


@attack("changes the kernel's settings", ["system"])
def _():
    return opened_for_writing(["/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory",
        "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/panic",
        "/sys/kernel/uevent_helper", "/proc/sys/net/ipv4/ip_forward"])


@attack("calls the machine by another name", ["privileges", "system"])
def _():
    check(libc.sethostname(b"hostile", 7))
    return None if socket.gethostname() == "hostile" and aim["hostname"] != "hostile" else True


@attack("writes what others run or read", ["system"])
def _():
    folders = ["/", "/etc", "/usr/local/bin", "/usr/bin", "/var/lib", "/root", "/opt", "/srv", "/home"]
    return written([*folders, os.path.expanduser("~"), *aim["shared"]])


@attack("reaches the machine's services in /run", ["system"])
def _():
    return [name for name in os.listdir("/run")]


@attack("sees devices beyond the plainest", ["system", "devices"])
def _():
    plain = {"null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr",
             "ptmx", "pts", "shm", "mqueue"}
    return sorted(set(os.listdir("/dev")) - plain)


with open(os.environ["SHOAL_OUTPUT"] + "/results.new", "w") as file:
    json.dump(results, file)
os.rename(os.environ["SHOAL_OUTPUT"] + "/results.new", os.environ["SHOAL_OUTPUT"] + "/results")
while not os.path.exists(os.environ["SHOAL_OUTPUT"] + "/seen"):
    time.sleep(0.02)
"""

GREEDY = r"""
import os, sys

size, kept = int(sys.argv[1]), []
try:
    if os.environ["SHOAL_INDEX"] == "0":
        kept.append(b"x" * size)
    elif os.environ["SHOAL_INDEX"] == "1":  # many processes, each of them modest
        readers = []
        for _ in range(8):
            reader, writer = os.pipe()
            if os.fork() == 0:
                kept.append(b"x" * (size // 8))
                os.write(writer, b"x")
                os.read(os.pipe()[0], 1)
            readers.append(reader)
            os.close(writer)
        if not all(os.read(reader, 1) for reader in readers):
            sys.exit(0)
    else:
        with open("/dev/shm/fill", "wb") as file:
            for _ in range(size >> 20):
                file.write(b"x" * (1 << 20))
except (MemoryError, OSError):
    sys.exit(0)
sys.exit(9)
"""
