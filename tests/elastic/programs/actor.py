"""A worker that plays a part: at a given moment of a given step it dies, waits, leaves, or breaks.

Its argument is a JSON object: `samples`, `batch`, `epochs`; `pace` (seconds a pass) until the file
`hurry` is there; `init` and `shards` (more arguments of those calls); `seeds` of the first parameters,
by name; `parts`: by name, a list of cues `{"step", "when", "do", ...}`. Each cue is played once by all
who ever bear the name (`folder` holds a mark for it), or with `rank` once by whoever has that rank, or
with `again` each time.

`when`: `before` the forward pass; `sending`, with some buckets sent and some not; `reducing`, with all
sent and none awaited; `reduced`, when backward has returned; `applied`, after the optimizers.
`do`: `kill`, `raise`, `stop`, `leave` (SIGTERM), `slow` (`seconds`), `mark` (make the file `file`),
`wait` (for all `files`), `hold` (until the members have changed), `break` (its group), `drop` (what
comes of `buckets` is garbage, and waiting for them fails), `dirty` (its parameters), `ask` (its group
for the collective `what`), `close` (its group, and end), `unbuilt` (its next group cannot be built),
`shaken` (the next group breaks once while its members agree), `save`.
Files are names in `folder`. More cues come in the file `NAME.orders` there; those are played in the
next step, whichever it is. With `torn`, the first state that a joiner takes breaks off half way.

What it learns: MLP 3 to 4 by Adam, and by SGD a count of how often each sample was learned (`count[i]`
falls by one each time). After each step it tells a digest of parameters and optimizers.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from pacing import Pace
from torch.nn import functional
from torch.utils.data import TensorDataset

from shoal import elastic
from shoal.elastic import training, wire
from shoal.elastic.allreduce.groups import Group
from shoal.elastic.errors import GroupFailed

told = json.loads(sys.argv[1])
name = os.environ.get("SHOAL_ELASTIC_NAME", "alone")
folder = Path(told["folder"])
cues = list(told.get("parts", {}).get(name, []))
training.CHECK_EVERY = told.get("check_every", training.CHECK_EVERY)
torch.set_num_threads(1)


def tell(**fields):
    os.write(1, (json.dumps({"at": time.monotonic(), **fields}) + "\n").encode())


def until(condition, what):
    deadline = time.monotonic() + 60.0
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.002)


class Learner(torch.nn.Module):
    """Four tensors of alternating types, so each has a bucket of its own; `count` is sent first."""

    def __init__(self, samples):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 3))
        self.scale = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
        self.bias = torch.nn.Parameter(torch.zeros(4))
        self.count = torch.nn.Parameter(torch.zeros(samples, dtype=torch.float64))
        self.register_buffer("passes", torch.zeros(1))

    def forward(self, index, x, y):
        self.passes += 1
        made = torch.sigmoid(functional.linear(x, self.weight, self.bias)) * self.scale
        return functional.mse_loss(made, y.double()) + self.count[index].mean()


class Wire:
    """What groups are asked for: the sums of a step in order, and which of them are lost; and how many
    bytes were given to ranks that lacked something."""

    def __init__(self):
        self.asked = []
        self.lost = set()
        self.moved = 0
        self.sum, self.wait, self.broadcast = Group.sum, Group.wait, Group.broadcast
        Group.sum = lambda group, tensor: self.begun(group, tensor)
        Group.wait = lambda group, pending: self.waited(group, pending)
        Group.broadcast = lambda group, tensor, source: self.given(group, tensor, source)

    def begin(self):
        self.asked.clear()
        self.lost.clear()

    def begun(self, group, tensor):
        pending = self.sum(group, tensor)
        self.asked.append((pending, tensor))
        return pending

    def waited(self, group, pending):
        self.wait(group, pending)
        number = next((n for n, (each, _) in enumerate(self.asked) if each is pending), None)
        if number in self.lost:
            for each, _ in self.asked:
                self.wait(group, each)
            self.asked[number][1].fill_(float("nan"))
            (folder / f"{name}-dropped").touch()
            until(lambda: job._membership.newer(group.epoch), "the members never changed")
            raise GroupFailed("what came of it was lost")

    def given(self, group, tensor, source):
        self.moved += tensor.numel() * tensor.element_size()
        self.broadcast(group, tensor, source)


def play(when):
    for cue in list(cues):
        due = job.step + (when != "applied")
        if cue["when"] != when or cue["step"] not in (due, 0) or cue.get("rank", job.rank) != job.rank:
            continue
        if not cue.get("again"):
            cues.remove(cue)
        if cue["step"] and not cue.get("again"):
            try:
                who = "anybody" if "rank" in cue else name
                mark = folder / f"{who}-{cue['step']}-{when}-{cue['do']}{cue.get('what', '')}.cue"
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
        tell(cue=cue["do"], when=when, at_step=due)
        act(cue)


def take_orders():
    orders = folder / f"{name}.orders"
    if orders.exists():
        cues.extend({"step": 0, **cue} for cue in json.loads(orders.read_text()))
        orders.unlink()


def act(cue):
    inside = job._training
    epoch = inside.group.epoch
    match cue["do"]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ValueError(cue.get("error", "out of luck"))
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "leave":
            os.kill(os.getpid(), signal.SIGTERM)
        case "slow":
            time.sleep(cue["seconds"])
        case "mark":
            (folder / cue["file"]).touch()
        case "wait":
            until(lambda: all((folder / each).exists() for each in cue["files"]), f"{cue['files']}")
        case "hold":
            until(lambda: job._membership.newer(epoch), "the members never changed")
        case "break":
            inside.group.interrupt()
        case "drop":
            sums.lost.update(cue["buckets"])
        case "dirty":
            with torch.no_grad():
                model.weight[0, 0] += 1.0
        case "ask":
            ask(inside.group, cue["what"])
        case "close":
            inside.group.close()
            (folder / f"{name}-closed").touch()
            os._exit(3)
        case "unbuilt":
            unbuilt()
        case "shaken":
            shaken(epoch)
        case "save":
            job.save()


def ask(group, what):
    """One collective of the group in use: right, or an error; and how long it took."""
    began = time.monotonic()
    mine = torch.full((1 << 16,), float(group.rank + 1))
    try:
        if what == "sum":
            group.wait(group.sum(mine))
            right = bool((mine == sum(range(1, group.size + 1))).all())
        elif what == "broadcast":
            group.broadcast(mine, group.size - 1)
            right = bool((mine == group.size).all())
        else:
            right = [int(each[0]) for each in group.gather(mine)] == list(range(1, group.size + 1))
        tell(asked=what, right=right, size=group.size, seconds=time.monotonic() - began)
    except GroupFailed as error:
        tell(asked=what, error=str(error), seconds=time.monotonic() - began)


def unbuilt():
    """As when a peer cannot be connected to."""
    groups = job._membership.groups
    whole = groups._make

    def make(*args):
        groups._make = whole
        raise RuntimeError("no peer answers")

    groups._make = make


def shaken(epoch):
    """As when an operation fails, and nobody is lost."""
    gather = Group.gather

    def broken(group, tensor):
        if group.epoch > epoch:
            Group.gather = gather
            group.interrupt()
        return gather(group, tensor)

    Group.gather = broken


def torn():
    """As when the connection breaks in the middle of a long payload."""
    whole = wire.Connection.receive_into

    def receive_into(connection, buffer):
        if len(buffer) > 1000:
            wire.Connection.receive_into = whole
            whole(connection, buffer[:500])
            (folder / f"{name}-torn").touch()
            connection.close()
        whole(connection, buffer)

    wire.Connection.receive_into = receive_into


def digest():
    kept = hashlib.sha256()
    for tensor in model.parameters():
        kept.update(tensor.detach().numpy().tobytes())
    for optimizer in (adam, counting):
        for state in optimizer.state_dict()["state"].values():
            for key in sorted(state):
                value = state[key]
                kept.update(value.numpy().tobytes() if torch.is_tensor(value) else str(value).encode())
    return kept.hexdigest()[:16]


generator = torch.Generator().manual_seed(1)
samples = told["samples"]
data = TensorDataset(
    torch.arange(samples),
    torch.randn(samples, 3, generator=generator),
    torch.rand(samples, 4, generator=generator),
)
torch.manual_seed(told.get("seeds", {}).get(name, 0))
model = Learner(samples)
adam = torch.optim.Adam([model.weight, model.scale, model.bias], lr=0.01)
counting = torch.optim.SGD([model.count], lr=1.0)
job = elastic.init(**told.get("init", {}))
model, adam, counting = job.wrap(model, adam, counting)
job.on_change(lambda view: tell(epoch=view.epoch, members=[m.name for m in view.members]))
sums = Wire()


def sending(_):
    if 0 < len(sums.asked) < 4:
        play("sending")


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(sending)
if told.get("torn") == name:
    torn()
tell(initial=digest())
batches = job.shards(
    data, batch_size=told["batch"], epochs=told["epochs"], seed=3, **told.get("shards", {})
)
former = job._training.waiting
began_moved = sums.moved


def waiting(waits):
    former(waits)
    if waits:
        play("reducing")


job._training.waiting = waiting
tell(began=job.step, rank=job.rank, state=digest())
pace = Pace(told.get("pace", 0.0), -(-samples // told["batch"]) * told["epochs"], Path(told["hurry"]))
for index, x, y in batches:
    pace.wait(job.step)
    sums.begin()
    take_orders()
    if told.get("draws"):
        tell(draw=torch.rand(1).item(), at_step=job.step + 1)
    play("before")
    position = job.cursor.position
    counting.param_groups[0]["lr"] = float(min(told["batch"], samples - position))
    model(index, x, y).backward()
    play("reduced")
    adam.step()
    counting.step()
    if job.stepped:
        tell(step=job.step, size=job.size, rank=job.rank, digest=digest(), data_epoch=job.epoch)
        play("applied")
learned = -model.count.detach()
tell(
    done=True,
    step=job.step,
    exact=bool((learned - float(told["epochs"])).abs().max() < 1e-9),
    low=learned.min().item(),
    high=learned.max().item(),
    digest=digest(),
    passes=model.passes.item(),
    moved=sums.moved - began_moved,
    values=[p.detach().flatten().tolist() for p in model.parameters()],
)
