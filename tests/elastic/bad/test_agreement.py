"""Workers that were not given the same, or do not do the same, are told so in words; what is not finite
is the same on all."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from shoal.elastic.errors import ElasticError
from shoal.elastic.terms import Terms, described
from tests.elastic.bad.reports import messages
from tests.elastic.bad.scripts import End, run, write
from tests.elastic.forked import ForkedJob
from tests.elastic.variants import soak

TERMS = Terms(
    1, 64, 16, 2, 0, True, 1, "a model", "an optimizer", "none", "none in buckets of 25 MiB", "kept"
)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"samples": 60}, r"a dataset of length 60 \(theirs: 64\)"),
        ({"batch_size": 8, "seed": 3}, r"batch_size 8 \(theirs: 16\), seed 3 \(theirs: 0\)"),
        ({"models": "another"}, r"model another \(theirs: a model\)"),
        ({"loop": 2, "models": "another"}, "model another"),
    ],
)
def test_what_differs_is_named(change: dict, sentence: str):
    mine = dataclasses.replace(TERMS, **change)
    theirs = json.loads(json.dumps(TERMS.to_wire()))
    with pytest.raises(ElasticError, match=sentence) as caught:
        mine.check(theirs)
    assert "\n" not in str(caught.value)
    assert mine.digests() != TERMS.digests()
    TERMS.check(theirs)


def test_another_loop_of_the_script_may_be_given_other_data():
    dataclasses.replace(TERMS, loop=2, samples=9, batch_size=3).check(TERMS.to_wire())


@pytest.mark.slow
def test_models_are_told_apart_by_names_shapes_and_types():
    models = [
        nn.Linear(4, 2),
        nn.Linear(2, 4),
        nn.Linear(4, 2).double(),
        nn.Linear(4, 2).requires_grad_(False),
        nn.Sequential(nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)),
    ]
    told = [described([model], [], [])[0] for model in models]
    assert len(set(told)) == len(models)
    assert described([nn.Linear(4, 2)], [], []) == described([nn.Linear(4, 2)], [], [])
    optimizer = torch.optim.SGD(models[0].parameters(), lr=0.1)
    assert described([], [optimizer], [optimizer])[1:] == ("SGD of 2 parameters", "SGD")


LOOP = """
{before}
job = elastic.init()
model, optimizer = job.wrap(model, optimizer)
for batch in job.shards({shards}):
    time.sleep(0.05)
    step(batch)
finish()
"""
SHARDS = "data, batch_size=16, epochs=4"
OTHER = {
    "batch": ("data, batch_size=16 if who == 'a' else 8, epochs=4", "", "batch_size 8 (theirs: 16)"),
    "length": (
        "TensorDataset(*(t[:64 if who == 'a' else 60] for t in data.tensors)), batch_size=16, epochs=4",
        "",
        "a dataset of length 60 (theirs: 64)",
    ),
    "model": (
        SHARDS,
        "if who == 'b':\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Linear(2, 1))\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)",
        "(theirs: Linear of 5 values in 2 tensors",
    ),
}


@pytest.mark.parametrize("name", ["batch", soak("length"), soak("model")])
@pytest.mark.process
@pytest.mark.slow
def test_whoever_was_given_something_else_goes_before_it_learns_anything(tmp_path: Path, name: str):
    """A first view of both; what the oldest member was given counts."""
    shards, before, sentence = OTHER[name]
    with ForkedJob(tmp_path, 2) as job:
        command = write(tmp_path, LOOP.format(shards=shards, before=before))
        job.start("a", command)
        job.until(lambda: "waiting: 1 of at least 2" in known(tmp_path), "a is the oldest")
        job.start("b", command)
        assert job.wait("b") == 1
        said = (tmp_path / "b.log").read_text().splitlines()[-1]
        assert sentence in said
        assert "all must run the same script on the same data" in said
        job.until(lambda: "paused" in (tmp_path / "a.log").read_text(), "a waits for another")
        assert not job.lines("a"), "nothing was learned"


@pytest.mark.process
@pytest.mark.slow
def test_a_joiner_with_another_batch_goes_and_the_others_do_not_notice(tmp_path: Path):
    shards, before, sentence = OTHER["batch"]
    body = LOOP.format(shards=shards.replace("epochs=4", "epochs=200"), before=before)
    with ForkedJob(tmp_path) as job:
        command = write(
            tmp_path, body.replace("sleep(0.05)", "sleep(0 if os.path.exists('hurry') else 0.05)")
        )
        job.start("a", command, {"PYTHONUNBUFFERED": "1"})
        job.until(lambda: len(job.lines("a")) > 3, "a trains")
        job.start("b", command)
        assert job.wait("b") == 1
        steps = [line["size"] for line in job.lines("a")]
        said = (tmp_path / "b.log").read_text()
    assert sentence in said.splitlines()[-1]
    assert set(steps) == {1}, "it was never a member"


@pytest.mark.process
@pytest.mark.slow
def test_one_that_leaves_its_loop_alone_does_not_mix_its_steps_with_the_others(tmp_path: Path):
    """badinput-3"""
    body = """
job = elastic.init()
model, optimizer = job.wrap(model, optimizer)
for loop in range(3):
    for batch in job.shards(data, batch_size=16, epochs=4):
        step(batch)
        if who == "b" and job.step == 5:
            break
finish()
"""
    found = run(tmp_path, body)
    assert [end.code for end in found.values()] == [1, 1]
    for end in found.values():
        assert "the workers are not at the same step: one has left its loop" in end.sentence
        assert '"step": 6' not in end.said, "nothing is learned from mixed gradients"


NUMBERS = """
job = elastic.init()
scaler = torch.amp.GradScaler("cpu", init_scale=8.0, enabled={scaled})
model, optimizer, scaler = job.wrap(model, optimizer, scaler)
for batch in job.shards(data, batch_size=16, epochs=2):
    loss = functional.mse_loss(model(batch[0]), batch[1])
    if who == "b" and job.step == 3:
        loss = loss * float("nan")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
tell(scale=scaler.get_scale())
finish()
"""


def last(end: End) -> dict:
    return json.loads([line for line in end.said.splitlines() if line.startswith("{")][-1])


@pytest.mark.process
@pytest.mark.slow
def test_a_scaler_skips_on_all_workers_what_is_not_finite_on_one(tmp_path: Path):
    found = run(tmp_path, NUMBERS.format(scaled=True))
    assert [end.code for end in found.values()] == [0, 0], found
    assert all('"scale": 4.0' in end.said for end in found.values()), "halved once"
    values = [last(end)["values"] for end in found.values()]
    assert values[0] == values[1]
    assert all(value == value for value in values[0])
    assert not any("not finite" in end.said for end in found.values()), "a scaler lives with that"


@pytest.mark.process
@pytest.mark.slow
def test_without_a_scaler_all_have_the_same_and_the_worker_they_came_from_says_so(tmp_path: Path):
    """badinput-3"""
    body = NUMBERS.format(scaled=True).replace(
        'torch.amp.GradScaler("cpu", init_scale=8.0, enabled=True)',
        "torch.optim.lr_scheduler.StepLR(optimizer, 1)",
    )
    for gone in ("scaler.update()\n", "tell(scale=scaler.get_scale())\n"):
        body = body.replace(gone, "\n")
    body = body.replace("scaler.scale(loss)", "loss").replace(
        "scaler.step(optimizer)", "optimizer.step()"
    )
    found = run(tmp_path, body)
    assert [end.code for end in found.values()] == [0, 0], found
    for end in found.values():
        assert all(value != value for value in last(end)["values"]), "as in plain torch"
    warned = [line for line in found["b"].said.splitlines() if "are not finite" in line]
    assert len(warned) == 1, found["b"].said
    assert "in step 4, of the samples at" in warned[0]
    assert "not finite" not in found["a"].said


def known(folder: Path) -> str:
    """What the coordinator has kept."""
    return "\n".join(messages(folder))
