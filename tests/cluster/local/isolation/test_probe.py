"""What this machine grants, and that the answer is kept."""

import json

import pytest

from shoal.cluster.local import launch
from shoal.cluster.local.isolation import namespaces
from shoal.cluster.local.isolation import probe as probing
from shoal.cluster.local.isolation.probe import probe

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_every_isolation_has_an_answer():
    found = probe()
    assert tuple(found) == namespaces.STRICT
    assert set(namespaces.DEFAULT) < set(found)
    for why in found.values():
        assert why == "enforced" or (len(why) > 10 and "\n" not in why)


def test_the_answer_is_kept_until_something_changes(tmp_path, monkeypatch):
    cache = tmp_path / "isolations.json"
    found = probe(cache)
    document = json.loads(cache.read_text())
    document["isolations"]["tmp"] = "made up"
    cache.write_text(json.dumps(document))
    assert probe(cache) == found | {"tmp": "made up"}
    monkeypatch.setattr(probing.os, "geteuid", lambda: 4242)
    assert probe(cache) == found
    cache.write_text("{torn")
    assert probe(cache) == found


def test_a_machine_on_which_nothing_starts_says_so(tmp_path, monkeypatch):
    script = tmp_path / "supervisor.py"
    script.write_text("raise SystemExit('something is missing')")
    monkeypatch.setattr(launch, "SUPERVISOR", str(script))
    assert probe() == dict.fromkeys(namespaces.STRICT, "no task can be started: something is missing")
