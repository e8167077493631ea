"""A state is taken apart and put together again, and nothing else can come out of a file."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.elastic.checkpoint.tree import join, split
from shoal.elastic.errors import CheckpointError
from tests.elastic.checkpoint.states import same, state_of

KEYS = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.tuples(st.integers(), st.text()))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.complex_numbers(allow_nan=False),
    st.frozensets(st.integers()).map(set),
    st.lists(st.integers(-9, 9)).map(torch.tensor),
)
STATES = st.dictionaries(
    st.text(),
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(KEYS, inner, max_size=4)
        ),
        max_leaves=12,
    ),
)


def there_and_back(state: Any) -> dict[str, Any]:
    plain, tensors = split(state)
    return join(json.loads(json.dumps(plain)), tensors)


@given(STATES)
@pytest.mark.slow
def test_round_trip(state: dict[str, Any]) -> None:
    assert same(there_and_back(state), state)


@pytest.mark.slow
def test_a_real_state() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    scheduler.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": torch.amp.GradScaler("cpu", enabled=False).state_dict(),
        "rng": {
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            "numpy": np.random.get_state(),
        },
    }
    back = there_and_back(state)
    assert same(back["optimizer"], state["optimizer"])
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])
    random.setstate(back["rng"]["python"])
    np.random.set_state(back["rng"]["numpy"])
    torch.set_rng_state(back["rng"]["torch"])
    assert there_and_back({"scheduler": {"last_epoch": scheduler.last_epoch}}) == {
        "scheduler": {"last_epoch": 1}
    }


def test_tensors_have_readable_names() -> None:
    _, tensors = split(
        {"model": OrderedDict(fc=torch.ones(1)), "optimizer": {"state": {0: torch.ones(1)}}}
    )
    assert list(tensors) == ["model.fc", "optimizer.state.0"]


def test_names_that_would_collide() -> None:
    state = {"a": {"b.c": torch.zeros(1)}, "a.b": {"c": torch.ones(1)}}
    assert same(there_and_back(state), state)


def test_one_tensor_under_two_names_is_kept_once() -> None:
    tied = torch.arange(3)
    plain, tensors = split({"encoder": tied, "decoder": tied, "part": tied[:2]})
    assert list(tensors) == ["encoder", "part"]
    back = join(plain, tensors)
    assert back["encoder"] is back["decoder"]


def test_numpy_scalars_become_numbers() -> None:
    back = there_and_back({"lr": np.float64(0.1), "n": np.int32(7), "f": np.float32(0.5)})
    assert back == {"lr": 0.1, "n": 7, "f": 0.5}
    assert type(back["f"]) is float


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "object"),
        (torch.nn.Linear(1, 1), "Linear"),
        (print, "builtin"),
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.empty(2, device="meta"), "meta"),
        ({torch.ones(1): 1}, "key"),
        (np.array(["text"]), "numpy array"),
    ],
)
def test_what_cannot_be_saved_is_named(value: object, words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        split({"extra": {"thing": [1, value]}})
    assert caught.value.code == "Unsupported"
    assert "extra.thing.1" in str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"dict": [[1]]},
        {"dict": 5},
        {"import": "os"},
        {"dict": [["x", {"tensor": "absent"}]]},
        {"dict": [["x", {"bytes": "*"}]]},
        {"dict": [["x", {"tuple": 1, "list": 2}]]},
        {"dict": [[{"dict": []}, 1]]},
    ],
)
def test_another_document_is_damaged(document: Any) -> None:
    with pytest.raises(CheckpointError) as caught:
        join(document, {})
    assert caught.value.code == "Damaged"


def test_states_of_the_tests_differ() -> None:
    assert same(state_of(3), state_of(3))
    assert not same(state_of(3), state_of(4))
