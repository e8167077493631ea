"""Real supervisors without an agent: each test writes launch.json as an agent would and starts one.

At the end nothing may be left: no process, no control group.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from shoal.cluster.local import groups, launch, supervisor_processes, taskfiles
from shoal.cluster.local.isolation import cgroups
from shoal.history import segments

TIMEOUT_SECONDS = 30.0


def wait_for(condition, what="it"):
    """What the condition returns, once that is true."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {TIMEOUT_SECONDS:g} s")
        time.sleep(0.003)
    return found


class User:
    """Who runs the supervisor: this user, or nobody in particular."""

    def __init__(self, name, uid, gid, python):
        self.name = name
        self.uid = uid
        self.gid = gid
        self.python = python

    def words(self, words):
        if self.uid == os.geteuid():
            return words
        setpriv = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        return [*setpriv, "--inh-caps=-all", *words]

    def own(self, path):
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.gid)


def users():
    """This user and, when that is root, an unprivileged one too."""
    found = [User("self", os.geteuid(), os.getegid(), sys.executable)]
    if os.geteuid() == 0 and shutil.which("setpriv") and Path("/usr/bin/python3").exists():
        found.append(User("nobody", 65534, 65534, "/usr/bin/python3"))
    return found


class Bench:
    """A home, and tasks in it that are started by hand."""

    def __init__(self, user):
        self.user = user
        self.tasks = []
        self.base = Path(tempfile.mkdtemp(prefix="shoal-test-", dir="/var/tmp"))
        self.base.chmod(0o755)
        user.own(self.base)
        self.home = self.base / "home"
        self.cwd = self.folder("cwd")
        for name in ("keys", "tasks", "logs", "output", "nodes/one/tasks", "sandboxes"):
            self.folder(f"home/{name}")
        self.parents = groups.prepare_parents(f"test-{os.getpid()}-{self.base.name}")

    def folder(self, name):
        path = self.base
        for part in name.split("/"):
            path /= part
            if not path.exists():
                path.mkdir(mode=0o700)
                self.user.own(path)
        return path

    def delegate(self):
        """Let the user make control groups, as an administrator would."""
        # version 2 lets nobody in from outside what is delegated
        groups.release_parents({"": self.parents.pop(cgroups.KILL, "")})
        for folder in self.parents.values():
            for path in (folder, f"{folder}/cgroup.procs"):
                self.user.own(path)

    def task(self, *argv, name="", job="job", **fields):
        """A task that is ready to be started; see `taskfiles.Launch` for the fields."""
        name = name or f"task{len(self.tasks)}"
        folder = self.folder(f"home/nodes/one/tasks/default.{name}")
        scratch = self.folder(f"home/nodes/one/work/default.{name}/scratch")
        rendezvous = self.folder(f"home/nodes/one/work/default.{name}/rendezvous")
        output = self.folder(f"home/output/default/{job}")
        log = self.folder(f"home/logs/default/{job}/{name}")
        environment = {
            "PATH": f"{Path(self.user.python).parent}:{os.defpath}",
            "HOME": str(self.base),
            "PYTHON": self.user.python,
            "SHOAL_SCRATCH": str(scratch),
            "SHOAL_OUTPUT": str(output),
        }
        isolation = {
            name: fields.pop(name) for name in ("mode", "keep", "other_homes") if name in fields
        }
        wanted = taskfiles.Launch(
            namespace="default", task=name, job=job, job_uid=job, role="worker", index=0, incarnation=0,
            argv=argv, env=environment | fields.pop("env", {}), cwd=str(fields.pop("cwd", self.cwd)),
            scratch=str(scratch), output=str(output), rendezvous=str(rendezvous),
            log=taskfiles.LogBounds(directory=str(log), **fields.pop("log", {})),
            limits=taskfiles.Limits(**fields.pop("limits", {})),
            cgroup_parents=fields.pop("cgroup_parents", self.parents if self.user.uid == 0 else {}),
            isolation=taskfiles.Isolation(
                home=str(self.home), tasks_socket=str(self.home / "tasks" / "api.sock"),
                sandbox=str(self.home / "sandboxes" / job), wanted=fields.pop("wanted", ()), **isolation,
            ),
            **fields,
        )  # fmt: skip
        taskfiles.write(str(folder), taskfiles.LAUNCH, wanted)
        self.user.own(folder / taskfiles.LAUNCH)
        task = Task(self, folder, Path(log))
        self.tasks.append(task)
        return task

    def start(self, *argv, **fields):
        """A task that is being started."""
        return self.task(*argv, **fields).spawn()

    def run(self, *argv, **fields):
        """A task that has ended; returns it."""
        task = self.start(*argv, **fields)
        task.exit()
        return task

    def close(self):
        for task in self.tasks:
            task.clear_up()
        left = wait_for(lambda: self._left() or ["none"] if not self._left() else None, "nothing left")
        assert left == ["none"]
        for parent in set(self.parents.values()):
            assert not [path for path in Path(parent).iterdir() if path.is_dir()], parent
        groups.release_parents(self.parents)
        shutil.rmtree(self.base)

    def _left(self):
        mark = os.fsencode(self.home)
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if mark in words and int(folder.name) != os.getpid():
                found.append(words)
        return found


class Task:
    """One supervisor and what is below it."""

    def __init__(self, bench, folder, log):
        self.bench = bench
        self.folder = folder
        self.log_folder = log
        self.process = None
        self.ready = -1
        self.errors = bench.base / f"{folder.name}.errors"

    def spawn(self, faults="", held=()):
        reader, writer = os.pipe()
        user = self.bench.user
        words = [user.python, "-I", "-S", launch.SUPERVISOR, str(self.folder), str(writer)]
        environment = {"SHOAL_FAULTS": faults} if faults else {}
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                user.words(words),
                env={**environment, "PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=(writer, *held),
                start_new_session=True,
            )
        os.close(writer)
        self.ready = reader
        return self

    def started(self):
        """Wait until the command was started."""
        if self.ready >= 0:
            assert os.read(self.ready, 1) == b""
            os.close(self.ready)
            self.ready = -1
        found = self.record(taskfiles.STARTED)
        assert found is not None, (self.record(taskfiles.EXIT), self.errors.read_text())
        return found

    def exit(self):
        """Wait for the end."""
        self.process.wait(TIMEOUT_SECONDS)
        found = self.record(taskfiles.EXIT)
        assert found is not None, self.errors.read_text()
        return found

    def record(self, name):
        try:
            return json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            return None

    def stop(self, grace, reason="Cancelled"):
        stop = taskfiles.Stop(reason=reason, grace_seconds=grace, at=time.time())
        taskfiles.write(str(self.folder), taskfiles.STOP, stop)
        self.bench.user.own(self.folder / taskfiles.STOP)
        self.signal(signal.SIGTERM)

    def signal(self, number):
        self.process.send_signal(number)

    def log(self):
        return b"".join(data for _, _, data in segments.Reader(str(self.log_folder)).read())

    def says(self, text):
        """Wait until the task has written this."""
        wait_for(lambda: text in self.log().decode(errors="replace"), f"the log's {text!r}")
        return self

    def below(self):
        """Every process that the supervisor has below it."""
        return supervisor_processes.descendants(self.process.pid)

    def path(self, name):
        return Path(self.record(taskfiles.LAUNCH)[name])

    def clear_up(self):
        if self.ready >= 0:
            os.close(self.ready)
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            wait_for(lambda: not supervisor_processes.with_argument(str(self.folder), "/supervisor.py"))
        cgroups.remove([f"{parent}/{self.folder.name}" for parent in self.bench.parents.values()])
