"""The frame around all verbs: help, errors, exit codes, and what may be imported when."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

import shoal.cli
from shoal import __version__
from shoal.cli.catalogue import VERBS
from shoal.cli.settings import Settings
from shoal.compat import kubeflow
from shoal.schedule.plan import POLICIES
from shoal.simulate import policies
from shoal.simulate.packing import policies as packing
from tests.cli.conftest import Shell

_HEAVY = ("fastapi", "sqlalchemy", "numpy", "rich", "asyncio", "yaml", "uvicorn", "alembic", "psutil")


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_what_the_catalogue_says(name: str) -> None:
    command: click.Command = VERBS[name].load()
    assert command.name == name
    assert command.help is not None
    assert command.help.splitlines()[0] == VERBS[name].help


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_explains_itself(sh: Shell, name: str) -> None:
    said = sh(name, "--help")
    assert said.code == 0
    assert said.out.startswith(f"Usage: shoal {name}")
    command: click.Command = VERBS[name].load()
    below = command.commands if isinstance(command, click.Group) else {}
    for words in [(name, each) for each in below] or [(name,)]:
        assert "--namespace" in sh(*words, "--help").out


def test_help_lists_every_verb(sh: Shell) -> None:
    said = sh("--help")
    assert said.code == 0
    for name, verb in VERBS.items():
        assert f"  {name} " in said.out
        assert verb.help in said.out


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("up",), POLICIES),
        (("simulate",), policies.POLICIES),
        (("simulate", "packing"), packing.POLICIES),
        (("convert",), (*kubeflow.KINDS, "Experiment", "TrainJob", "JobSet", "batch.volcano.sh")),
    ],
)
def test_help_names_each_policy_and_manifest_that_there_is(
    sh: Shell, words: tuple[str, ...], names: Iterable[str]
) -> None:
    said = " ".join(sh(*words, "--help").out.split()).replace("- ", "-")
    assert [name for name in names if name not in said] == []


def test_nothing_at_all_is_a_call_for_help(sh: Shell) -> None:
    assert sh() == sh("--help")


def test_version_of_the_program_itself(sh: Shell) -> None:
    assert sh("--version").out == f"shoal {__version__}\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["get", "jobs"], ["completion", "zsh"]])
def test_light_verbs_import_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    """No server is there: `get` ends with 6, after all of its imports."""
    program = (
        "import sys\n"
        "from shoal.cli.main import main\n"
        f"sys.argv = ['shoal', *{words!r}]\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        f"print('heavy:', *[m for m in {_HEAVY!r} if m in sys.modules])\n"
    )
    environment = {**os.environ, "SHOAL_HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "heavy:"


@pytest.mark.slow
def test_only_offline_verbs_know_lower_layers() -> None:
    allowed = ("shoal", "shoal.cli", "shoal.client", "shoal.objects", "shoal.compat")
    folder = Path(shoal.cli.__file__).parent
    for file in sorted(folder.rglob("*.py")):
        if "offline" in file.parts:
            continue
        for name in _imports(ast.parse(file.read_text())):
            known = any(name == a or name.startswith(f"{a}.") for a in allowed[1:])
            assert known or not name.startswith("shoal.") or name in allowed, f"{file}: {name}"


def test_a_mistyped_verb_is_named_with_the_nearest(sh: Shell) -> None:
    said = sh("descibe", "job/x")
    assert (said.code, said.out) == (2, "")
    assert "there is no verb 'descibe'" in said.err
    assert "did you mean `shoal describe`?" in said.err


def test_the_word_of_another_tool_leads_to_ours(sh: Shell) -> None:
    assert "did you mean `shoal get`?" in sh("ls").err
    assert "`shoal --help` lists the verbs" in sh("xyzzy").err


def test_a_usage_error_is_one_sentence_and_a_hint(sh: Shell) -> None:
    said = sh("get", "--limt", "3", "jobs")
    assert said.code == 2
    assert said.err.splitlines() == [
        "error: no such option '--limt'",
        "hint: did you mean --limit? `shoal get --help` shows how it is used",
    ]


@pytest.mark.parametrize("words", [["-o", "json"], ["--json"], ["-ojson"], ["--output=json"]])
def test_errors_are_documents_under_json(sh: Shell, words: list[str]) -> None:
    said = sh("get", *words, "--bad", "jobs")
    assert said.code == 2
    assert said.document["code"] == "Usage"
    assert set(said.document) == {"code", "message", "hint", "details"}


def test_no_server_is_exit_code_6_and_says_how_to_start_one(sh: Shell) -> None:
    said = sh("get", "jobs", "-o", "json")
    assert said.code == 6
    assert said.document["code"] == "Unavailable"
    assert "hint: start one with: shoal up" in said.err


def test_debug_shows_the_traceback(sh: Shell) -> None:
    assert "Traceback" not in sh("get", "jobs").err
    assert "Traceback" in sh("--debug", "get", "jobs").err
    assert "Traceback" in sh("get", "jobs", "--debug").err


def test_a_defect_is_told_as_one(sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Settings) -> str:
        raise ZeroDivisionError("it broke")

    monkeypatch.setattr(Settings, "namespace", property(broken))
    said = sh("get", "jobs")
    assert said.code == 1
    assert "error: Shoal itself went wrong: ZeroDivisionError: it broke" in said.err


def test_options_stand_before_or_after_the_verb(sh: Shell, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    before = sh("--home", str(elsewhere), "get", "jobs")
    after = sh("get", "jobs", "--home", str(elsewhere))
    assert before.err == after.err
    assert str(elsewhere / "api.sock") in after.err


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_error(tmp_path: Path) -> None:
    environment = {**os.environ, "SHOAL_HOME": str(tmp_path)}
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [sys.executable, "-m", "shoal.cli", "completion", "zsh"],
        env=environment,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (ran.returncode, ran.stderr) == (141, b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "code", "says"),
    [
        ("get jobs -o json >/dev/full", 6, "error: no server answers"),
        ("schema >&-", 2, "error: there is no verb"),
        ("get jobs -o json | true; exit ${PIPESTATUS[0]}", 6, "error: no server answers"),
    ],
)
def test_a_stdout_that_cannot_be_written_to_hides_no_error(
    tmp_path: Path, ending: str, code: int, says: str
) -> None:
    words = ["bash", "-c", f"{sys.executable} -m shoal.cli {ending}"]
    ran = subprocess.run(
        words, env={"SHOAL_HOME": str(tmp_path), "PATH": os.defpath}, capture_output=True, check=False
    )
    told = ran.stderr.decode()
    assert (ran.returncode, told.count("\n") <= 2, says in told) == (code, True, True), told


@pytest.mark.slow
def test_messages_for_a_closed_stderr_do_not_come_out_of_stdout(tmp_path: Path) -> None:
    words = ["bash", "-c", f"{sys.executable} -m shoal.cli get jobs 2>&-"]
    env = {"SHOAL_HOME": str(tmp_path), "PATH": os.defpath}
    ran = subprocess.run(words, env=env, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (6, b"")


def _imports(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names
