from __future__ import annotations

from pathlib import Path

import pytest

from shoal.cli.settings import Settings
from shoal.objects.errors import Invalid, NotFound
from tests.cli.conftest import Shell

_FILE = """
current = "lab"

[contexts.lab]
url = "http://127.0.0.1:9"
token-file = "TOKEN"
namespace = "team-a"

[contexts.scratch]
home = "/tmp/scratch"
"""


@pytest.fixture
def contexts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SHOAL_HOME")
    token = tmp_path / "token"
    token.write_text("secret\n")
    file = tmp_path / "config.toml"
    file.write_text(_FILE.replace("TOKEN", str(token)))
    return file


def test_without_anything_it_is_the_home_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOAL_HOME")
    settings = Settings()
    assert settings.home == Path.home() / ".shoal"
    assert (settings.namespace, settings.remote) == ("default", False)


def test_flags_before_variables_before_contexts(
    contexts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Settings().context.name == "lab"
    assert Settings().namespace == "team-a"
    assert Settings().remote
    monkeypatch.setenv("SHOAL_NAMESPACE", "team-b")
    assert Settings().namespace == "team-b"
    assert Settings(namespace_flag="team-c").namespace == "team-c"
    monkeypatch.setenv("SHOAL_CONTEXT", "scratch")
    assert (Settings().home, Settings().remote) == (Path("/tmp/scratch"), False)
    assert Settings(context_flag="lab").remote
    assert Settings(context_flag="lab").context.token == "secret"


def test_a_home_that_is_named_beats_the_files_current_context(
    contexts_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "h"))
    assert (Settings().home, Settings().remote) == (tmp_path / "h", False)
    assert not Settings(home_flag="/x").remote


def test_inside_a_task_the_platform_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOAL_HOME")
    monkeypatch.setenv("SHOAL_API", "unix:///run/api.sock")
    assert Settings().remote
    assert not Settings(home_flag="/x").remote


def test_an_unknown_context_is_told_with_those_there_are(contexts_file: Path, sh: Shell) -> None:
    with pytest.raises(NotFound) as error:
        _ = Settings(context_flag="lob").context
    assert "lab, scratch" in error.value.hint
    said = sh("--context", "lob", "get", "jobs")
    assert (said.code, said.out) == (3, "")
    assert "no context is called lob" in said.err


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("contexts = 3", "may hold"),
        ("[contexts.a]\nurl = 3", "contexts.a.url"),
        ("[contexts.a]\ntoken = 'x'", "contexts.a.token"),
        ("colour = 'x'", "colour"),
        ("not toml", "is not TOML"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(contexts_file: Path, text: str, wrong: str) -> None:
    contexts_file.write_text(text)
    with pytest.raises(Invalid, match=wrong):
        _ = Settings().context


def test_hints_repeat_what_was_said() -> None:
    settings = Settings(home_flag="/x", namespace_flag="team-a")
    assert settings.spelt("get jobs") == "shoal --home /x -n team-a get jobs"
    assert Settings().spelt("down") == "shoal down"
