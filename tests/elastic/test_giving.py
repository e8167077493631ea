"""A joiner gets the state of one step boundary, though the donor trains on while it is copied."""

from __future__ import annotations

import time

import pytest
import torch

from shoal.elastic.api import Job
from shoal.elastic.joining.donor import Donor
from shoal.elastic.joining.join import Applied, Follower, InUse, Snapshot, Update
from shoal.elastic.state import digest
from shoal.elastic.training import Training
from tests.elastic.gpu.devices import DEVICES

pytestmark = pytest.mark.slow


class Script:
    """A network with batch statistics, trained alone, with a donor that listens."""

    def __init__(self, device: str, *, clamps: bool = False, leaves_out: int = 0) -> None:
        torch.manual_seed(2)
        self.device = device
        self.clamps = clamps
        self.leaves_out = leaves_out
        self.donor = Donor("127.0.0.1", lambda: "key")
        self.training = Training(None, self.donor)
        self.job = Job(self.training, None, None)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(300, 2000), torch.nn.BatchNorm1d(2000), torch.nn.Linear(2000, 10)
        ).to(device)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.job.wrap(self.model, optimizer)
        self.optimizer = optimizer
        self.follower: Follower | None = None
        self.digests: dict[int, int] = {}
        self.means: dict[int, torch.Tensor] = {}

    def run(self, join_at: int, until: int) -> None:
        for index in self.job.shards(range(100_000), batch_size=8):
            if self.clamps:
                with torch.no_grad():
                    for parameter in self.model.parameters():
                        parameter.clamp_(-0.02, 0.02)
            inputs = torch.randn(len(index), 300, device=self.device)
            self.model(inputs).square().mean().backward()
            step = self.job.step + 1
            if not join_at < step <= join_at + self.leaves_out:
                self.optimizer.step()
            else:
                self.optimizer.zero_grad()
            self.digests[step] = digest([p.detach() for p in self.model.parameters()])
            self.means[step] = self.model.state_dict()["1.running_mean"].cpu().clone()
            if step == join_at:
                self.follower = Follower(self.donor.address, "key")
                deadline = time.monotonic() + 10.0
                while not self.donor.wanted and time.monotonic() < deadline:
                    time.sleep(0.001)
            if step == until:
                break
            if step > join_at:
                time.sleep(0.01)

    def events(self) -> list[object]:
        assert self.follower is not None
        found: list[object] = []
        while (event := self.follower.next(1.0)) is not None:
            found.append(event)
        self.follower.close()
        self.job.close()
        assert found[0] == InUse(0)
        return found[1:]


@pytest.mark.parametrize("device", DEVICES)
def test_the_snapshot_is_of_one_step_and_what_follows_is_whole(device: str):
    script = Script(device)
    script.run(join_at=3, until=40)
    snapshot, *rest = script.events()
    assert isinstance(snapshot, Snapshot)
    assert snapshot.step >= 3
    model = snapshot.tree["objects"]["models"][0]
    names = [name for name, _ in script.model.named_parameters()]
    assert digest([model[name] for name in names]) == snapshot.digest == script.digests[snapshot.step]
    assert torch.equal(model["1.running_mean"], script.means[snapshot.step])
    steps = [event.step for event in rest if isinstance(event, Applied)]
    assert steps == list(range(snapshot.step + 1, snapshot.step + 1 + len(steps)))
    assert steps[-1] >= 39
    assert sum(isinstance(event, Update) for event in rest) in (len(steps), len(steps) + 1)


def test_a_script_that_changes_parameters_between_steps_is_served_too():
    """What is read while it changes is thrown away, and copied at once the next time."""
    script = Script("cpu", clamps=True)
    script.run(join_at=3, until=40)
    snapshot, *_ = script.events()
    assert isinstance(snapshot, Snapshot)
    model = snapshot.tree["objects"]["models"][0]
    names = [name for name, _ in script.model.named_parameters()]
    assert digest([model[name] for name in names]) == script.digests[snapshot.step]


def test_steps_that_are_left_out_give_no_old_snapshot():
    """As a scaler does whose gradients overflow: the step counts, and no optimizer acts."""
    script = Script("cpu", leaves_out=15)
    script.run(join_at=3, until=40)
    snapshot, *rest = script.events()
    assert isinstance(snapshot, Snapshot)
    model = snapshot.tree["objects"]["models"][0]
    assert torch.equal(model["1.running_mean"], script.means[snapshot.step])
    steps = [event.step for event in rest if isinstance(event, Applied)]
    assert snapshot.step >= 17
    assert steps[0] == snapshot.step + 1
