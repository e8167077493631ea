"""What holds for the whole cluster of a home."""

import pytest

from shoal.cluster.local import settings
from shoal.cluster.local.home import Home
from shoal.cluster.local.settings import ClusterSettings
from shoal.objects.errors import Invalid


def test_they_are_the_defaults_until_somebody_says_otherwise(tmp_path):
    home = Home(tmp_path).create()
    assert settings.load(home) == ClusterSettings()
    said = ClusterSettings(topology=("block", "rack"))
    settings.save(home, said)
    assert settings.load(Home(tmp_path)) == said
    settings.save(home, ClusterSettings())
    assert settings.load(home) == ClusterSettings()
    assert not list(tmp_path.glob("settings.*[!n]")), "no draft stays"


def test_a_file_that_is_something_else_is_named(tmp_path):
    home = Home(tmp_path).create()
    home.settings_json.write_text('{"topology": 3}')
    with pytest.raises(Invalid, match=r"settings\.json cannot be read") as raised:
        settings.load(home)
    assert raised.value.hint == "remove it"
