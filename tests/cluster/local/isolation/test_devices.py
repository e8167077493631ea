"""Which GPUs a task sees, by a made-up machine's files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.cluster.local import supervisor_plan
from shoal.cluster.local.isolation.probe import probe


@pytest.fixture
def machine(tmp_path):
    """Two GPUs whose device files are numbered against the order of their addresses."""
    for name in ("null", "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps", "vda"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    for address, minor, uuid in (("0000:00:05.0", 1, "GPU-aaa"), ("0000:00:09.0", 0, "GPU-bbb")):
        folder = tmp_path / "proc/driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        text = f"Model: \t\t Some GPU\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("given", "own"),
    [
        (("0",), {"nvidia1"}),
        (("GPU-bbb",), {"nvidia0"}),
        (("0", "1"), {"nvidia0", "nvidia1"}),
        ((), None),
    ],
)
def test_files(machine, given, own):
    shared = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps"}
    expected = set() if own is None else shared | {f"/dev/{name}" for name in own}
    assert set(supervisor_plan.files(given, machine)) == expected


def test_a_driver_that_tells_nothing_numbers_by_index(tmp_path):
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    assert supervisor_plan.files(("1",), str(tmp_path)) == ["/dev/nvidia1", "/dev/nvidiactl"]
    assert supervisor_plan.files(("1",), str(tmp_path / "nowhere")) == []


def test_environment():
    assert supervisor_plan.environment(("0", "2")) == {
        "CUDA_VISIBLE_DEVICES": "0,2",
        "NVIDIA_VISIBLE_DEVICES": "0,2",
    }
    assert supervisor_plan.environment(()) == {
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }


@pytest.mark.process
@pytest.mark.slow
def test_device_files_and_folders_of_them_are_put_back():
    if probe()["devices"] != "enforced":
        pytest.skip(f"device files cannot be covered here: {probe()['devices']}")
    own = {"pts", "shm", "mqueue"}
    folders = [path for path in Path("/dev").iterdir() if path.is_dir() and not path.is_symlink()]
    folder = next((path for path in folders if path.name not in own and any(path.iterdir())), None)
    if folder is None:
        pytest.skip("no folder of devices in /dev")
    program = (
        "import os, sys\n"
        "from shoal.cluster.local.isolation import mounts, namespaces\n"
        "namespaces.leave(['devices'])\n"
        "cover = mounts.Devices('devices', sys.argv[1:])\n"
        "cover.prepare(); cover.lay('/dev'); cover.close()\n"
        "print(sorted(os.listdir('/dev')), sorted(os.listdir(sys.argv[1])))\n"
    )
    source = str(Path(__file__).parents[4] / "src")
    words = [sys.executable, "-c", program, str(folder), "/dev/null"]
    done = subprocess.run(words, env={"PYTHONPATH": source}, capture_output=True, text=True, check=True)
    assert f"'{folder.name}'" in done.stdout
    assert str(sorted(os.listdir(folder))) in done.stdout  # noqa: PTH208
