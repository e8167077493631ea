"""Which GPUs a task sees, by a made-up machine's files."""

import pytest

from shoal.cluster.local.isolation import devices


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
    assert set(devices.files(given, machine)) == expected


def test_a_driver_that_tells_nothing_numbers_by_index(tmp_path):
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    assert devices.files(("1",), str(tmp_path)) == ["/dev/nvidia1", "/dev/nvidiactl"]
    assert devices.files(("1",), str(tmp_path / "nowhere")) == []


def test_environment():
    assert devices.environment(("0", "2")) == {
        "CUDA_VISIBLE_DEVICES": "0,2",
        "NVIDIA_VISIBLE_DEVICES": "0,2",
    }
    assert devices.environment(()) == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
