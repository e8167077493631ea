"""A checkpoint that is gone on from with other data: told, and nothing breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from shoal import elastic
from shoal.elastic import ElasticError


def train(folder: Path, samples: int, seed: int, steps: int, **options: Any) -> int:
    """Train one worker for so many steps; the step that it began after."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    job = elastic.init(checkpoint=folder, **options)
    _, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    began = None
    for rows in job.shards([torch.ones(2)] * samples, 4, epochs=2, seed=seed):
        began = job.step if began is None else began
        model(rows).mean().backward()
        optimizer.step()
        if job.step == began + steps:
            job.save()
            break
    job.close()
    assert began is not None
    return began


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "seed"), [(40, 1), (20, 0), (12, 0)])
def test_other_data_amid_an_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], samples: int, seed: int
):
    assert train(tmp_path, 40, 0, 6) == 0
    capsys.readouterr()
    assert train(tmp_path, samples, seed, 2) > 0
    said = capsys.readouterr().err
    assert "amid an epoch with other data" in said
    assert (f"seed {seed}" if seed else f"length {samples}") in said


@pytest.mark.slow
def test_the_same_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    train(tmp_path, 40, 0, 6)
    assert train(tmp_path, 40, 0, 2) > 0
    assert "other data" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_checkpoint_of_another_job_is_refused_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A second job in the first one's folder took its last step over, trained nothing and succeeded."""
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setenv("SHOAL_JOB_UID", "uid-1")
    assert train(first, 40, 0, 6) == 0
    assert train(first, 40, 0, 2) == 6
    monkeypatch.setenv("SHOAL_JOB_UID", "uid-2")
    with pytest.raises(ElasticError, match=r"of another job \(uid-1\).*load_from="):
        train(first, 40, 0, 2)
    assert train(second, 40, 0, 2, load_from=first) == 8
    assert train(second, 40, 0, 2, load_from=first) == 10, "its own comes first"
    with pytest.raises(ElasticError, match=r"no checkpoint in .*nowhere \(load_from=\)"):
        train(tmp_path / "third", 40, 0, 2, load_from=tmp_path / "nowhere")
    with pytest.raises(ElasticError, match="load_from= needs a folder"):
        elastic.init(load_from=first)
