"""`shoal secret`."""

from __future__ import annotations

import getpass
from pathlib import Path

from shoal.client import Client
from tests.cli.conftest import Shell
from tests.server.harness import LiveServer

VALUE = "correct-horse-battery"


def test_a_value_comes_from_standard_input_and_is_shown_nowhere(sh: Shell, server: LiveServer) -> None:
    made = sh("secret", "create", "hub", input=VALUE + "\n")
    assert (made.code, made.out) == (0, "secret hub is created: value\n"), made.err
    listed, wide = sh("secret", "list"), sh("secret", "list", "-o", "yaml")
    shown, document = sh("secret", "describe", "hub"), sh("secret", "describe", "hub", "-o", "json")
    assert listed.lines[1].split()[:2] == ["hub", "value"]
    assert document.document["keys"] == ["value"]
    assert "Keys:      value" in shown.out
    said = [made, listed, wide, shown, document, sh("audit", "-o", "json"), sh("get", "jobs")]
    assert not any(VALUE in each.out + each.err for each in said)


def test_a_value_on_the_command_line_is_refused_with_the_reason(sh: Shell, server: LiveServer) -> None:
    said = sh("secret", "create", "hub", f"value={VALUE}")
    assert said.code == 2
    assert "every user of this machine sees the arguments of a process" in said.err
    assert "write it to standard input: shoal secret create hub < FILE" in said.err
    assert VALUE not in said.err
    assert sh("secret", "list", "-o", "json").document == {"items": []}


def test_files_are_values_by_key(sh: Shell, server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"line\n")
    arguments = ("--from-file", f"pw={tmp_path}/token", "--from-file", f"{tmp_path}/token")
    assert sh("secret", "create", "mail", *arguments).code == 0
    assert sh("secret", "describe", "mail", "-o", "json").document["keys"] == ["pw", "token"]
    missing = sh("secret", "create", "none", "--from-file", f"{tmp_path}/none")
    assert (missing.code, "cannot be read: No such file" in missing.err) == (2, True), missing.err


def test_replacing_deleting_and_rotating(sh: Shell, server: LiveServer, client: Client) -> None:
    assert sh("secret", "create", "hub", input="1").code == 0
    again = sh("secret", "create", "hub", input="2")
    assert (again.code, "--replace sets its values anew" in again.err) == (4, True), again
    assert sh("secret", "create", "hub", "--replace", input="2").code == 0
    assert sh("secret", "rotate-key").out.startswith("1 secret encrypted with a new key")
    assert sh("secret", "delete", "hbu", "-y").err.count("did you mean hub?") == 1
    assert sh("secret", "delete", "hub", "-y").code == 0
    assert client.secrets("default") == ()
    assert sh("secret", "create", "hub", input="").code == 2, "an empty standard input is a mistake"


def test_one_key_is_set_and_the_others_stay(sh: Shell, server: LiveServer) -> None:
    assert sh("secret", "set", "hub", input="1").out == "secret hub is set: value\n"
    made = sh("secret", "set", "hub", "--key", "kk", input="2")
    assert (made.code, made.out) == (0, "secret hub is set: kk, value\n"), made.err
    refused = sh("secret", "set", "hub", "kk=2")
    assert "write it to standard input: shoal secret set hub < FILE" in refused.err


def test_describe_names_the_user_that_created_it(sh: Shell, server: LiveServer) -> None:
    assert sh("secret", "create", "hub", input="1").code == 0
    assert f"by {getpass.getuser()}" in sh("secret", "describe", "hub").out
