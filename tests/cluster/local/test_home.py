import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from shoal.cluster.local import home
from shoal.cluster.local import home as homes
from shoal.cluster.local.home import Home, HomeError, Lock
from shoal.testing.local import wait_until


def test_everything_is_for_the_owner_alone(tmp_path):
    home = Home(tmp_path / "a" / "b").create()
    home.node("local").create()
    for folder, _, _ in os.walk(home.path):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700, folder


def test_a_home_that_others_could_enter_is_closed(tmp_path):
    path = tmp_path / "home"
    path.mkdir(mode=0o755)
    Home(path).create().create()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_home_that_cannot_be_made_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match="set SHOAL_HOME"):
        Home(tmp_path / "file" / "home").create()


def test_the_environment_names_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "x"))
    assert Home.default().path == tmp_path / "x"
    monkeypatch.delenv("SHOAL_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Home.default().path == tmp_path / ".shoal"


def test_a_lock_has_one_holder_and_names_it(tmp_path):
    lock, other = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert lock.holder() is None
    assert lock.try_acquire()
    assert lock.holder() == os.getpid()
    assert not other.try_acquire()
    with pytest.raises(TimeoutError, match=str(os.getpid())):
        other.acquire(0.02)
    lock.release()
    assert other.holder() is None
    with other:
        other.acquire(1.0)
    assert lock.try_acquire()
    lock.release()


def test_who_looks_for_the_holder_does_not_keep_others_from_the_lock(tmp_path):
    lock, watched = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert lock.try_acquire()
    lock.release()
    done = threading.Event()

    def look():
        while not done.is_set():
            watched.holder()

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            lock.acquire(5.0)
            lock.release()
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("depth", [0, 20])
def test_sockets_work_under_paths_of_any_length(tmp_path, depth):
    folder = tmp_path.joinpath(*["a-long-name"] * depth)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "api.sock"
    with homes.listen(path) as listener:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with homes.connect(path, 1.0) as client, listener.accept()[0] as served:
            client.sendall(b"hello")
            assert served.recv(5) == b"hello"
    with homes.listen(path):  # in place of what an earlier one left
        homes.connect(path, 1.0).close()


def test_nobody_listens(tmp_path):
    with pytest.raises(OSError):
        homes.connect(tmp_path / "none", 1.0)


def test_homes_are_known_until_they_are_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(home, "_folders", lambda: [tmp_path / "notes"])
    first, second = (Home(tmp_path / name).create() for name in ("first", "second"))
    Home(tmp_path / "first").create()
    assert home.known_homes() == [str(first.path), str(second.path)]
    shutil.rmtree(first.path)
    assert home.known_homes() == [str(second.path)]
    assert len(list((tmp_path / "notes").iterdir())) == 1


def test_what_is_no_note_does_not_hide_the_homes(tmp_path, monkeypatch):
    """A task may have left anything beside the notes: what is listed first is no matter."""
    notes = tmp_path / "notes"
    monkeypatch.setattr(home, "_folders", lambda: [tmp_path / "file", notes])
    (tmp_path / "file").touch()
    notes.mkdir()
    for number in range(30):
        (notes / f"before{number}").touch()
    made = Home(tmp_path / "home").create()
    home.note_home(made.path)
    (notes / "noted").symlink_to(made.path)
    for number in range(30):
        (notes / f"zz{number}").touch()
        (notes / f"folder{number}").mkdir()
    (notes / "round").symlink_to(notes / "round")
    assert home.known_homes() == [str(made.path)]


def test_so_many_homes_are_known_as_a_task_can_hide(tmp_path, monkeypatch):
    notes = tmp_path / "notes"
    monkeypatch.setattr(home, "_folders", lambda: [notes])
    monkeypatch.setattr(home, "_MOST_HOMES", 3)
    for name in ("d", "c", "b", "a", "e"):
        made = Home(tmp_path / name).create()
        wait_until(lambda made=made: _later(notes, made.path))
    assert home.known_homes() == [str(tmp_path / name) for name in ("b", "c", "d")]


def _later(notes, path):
    """True once the clock of the file system is past what was noted."""
    (probe := notes.parent / "probe").write_text("")
    noted = next(link for link in notes.iterdir() if link.readlink() == path)
    return probe.stat().st_ctime_ns > noted.lstat().st_ctime_ns


def test_a_folder_that_another_user_made_is_not_believed(tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    notes = tmp_path / "notes"
    notes.mkdir()
    os.chown(notes, 64_999, 64_999)
    monkeypatch.setattr(home, "_folders", lambda: [notes])
    Home(tmp_path / "home").create()
    assert home.known_homes() == []
