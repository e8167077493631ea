"""Workers that fail of themselves: each way is told from the others, named once, and costs one worker; a
sample on which all of them fail costs two, and then the job."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.elastic.bad.reports import messages
from tests.elastic.bad.scripts import ends, run, write
from tests.elastic.forked import ForkedJob
from tests.elastic.variants import soak

pytestmark = [pytest.mark.process, pytest.mark.slow]

LOOP = """
job = elastic.init(max_stall={stall})
model, optimizer = job.wrap(model, optimizer)
passes = 0
for batch in job.shards(data, batch_size=16, epochs=30):
    passes += job.size == 2
    time.sleep(0.01 if passes else 0.25)  # whoever is first waits for the other
    if passes >= 4 and who == "bad":
        {harm}
    step(batch)
finish()
"""


def one_goes_the_other_through(folder: Path, harm: str, stall: float = 60.0) -> tuple[int, str, str]:
    """Exit code and words of the worker that fails, and what the coordinator was told."""
    found = run(folder, LOOP.format(harm=harm, stall=stall), ("bad", "good"), minimum=1)
    assert found["good"].code == 0, found["good"].said
    assert '"done": true, "step": 120' in found["good"].said
    assert '"size": 2' in found["good"].said
    return found["bad"].code, found["bad"].said, "\n".join(messages(folder))


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        ("raise ValueError('a loss that is no loss')", "ValueError: a loss that is no loss"),
        soak("torch.empty(1 << 50)", "DefaultCPUAllocator: can't allocate memory"),
        soak("bytearray(1 << 60)", "MemoryError"),
        ("continue", "without backward() on the last one: call it in every pass"),
    ],
    ids=["raises", "out of torch's memory", "out of memory", "no backward"],
)
def test_a_worker_that_fails_goes_alone_and_is_named(tmp_path: Path, harm: str, sentence: str):
    code, said, told = one_goes_the_other_through(tmp_path, harm)
    assert code == 1
    assert sentence in said.splitlines()[-1]
    assert f"bad failed: {sentence.split(':')[0]}" in told or sentence in told, told


def test_a_worker_that_crashes_in_c_is_named_with_its_line(tmp_path: Path):
    """badinput-2"""
    code, said, told = one_goes_the_other_through(tmp_path, "ctypes.string_at(0)")
    assert code == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in said, "what the handler of such signals prints"
    assert "bad failed: it crashed: Segmentation fault" in told


def test_a_worker_that_is_killed_from_outside_has_not_failed(tmp_path: Path):
    """The kernel's SIGKILL, when memory runs out, is one of these."""
    code, _, told = one_goes_the_other_through(tmp_path, "os.kill(os.getpid(), 9)")
    assert code == -signal.SIGKILL
    assert "bad: its process is gone" in told
    assert "bad failed" not in told


@pytest.mark.parametrize(
    "harm", ["ctypes.PyDLL(None).sleep(60)", soak("time.sleep(60)")], ids=["GIL", "waits"]
)
def test_a_worker_that_hangs_is_put_out_and_ended(tmp_path: Path, harm: str):
    """training-N3: in C with the interpreter lock held, or in a wait."""
    code, said, told = one_goes_the_other_through(tmp_path, harm, stall=2.0)
    assert code == -signal.SIGKILL
    assert "shoal: bad made no progress for 2 s (max_stall) and was ended." in said
    assert "bad: it makes no progress" in told, told


POISON = """
class Samples(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 37:
            {harm}
        return data[index]

job = elastic.init()
model, optimizer = job.wrap(model, optimizer)
for batch in job.shards(Samples(), batch_size=16, epochs=3):
    step(batch)
finish()
"""


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("raise ValueError('a broken image')", "ValueError: a broken image"),
        ("ctypes.string_at(0)", "it crashed: Segmentation fault"),
        soak("os.abort()", "it crashed: Aborted"),
    ],
    ids=["raises", "segfault", "abort"],
)
def test_a_sample_that_ends_every_worker_ends_the_job_and_is_named(
    tmp_path: Path, harm: str, words: str
):
    """badinput-2. Two of four pay for it; the others are told."""
    with ForkedJob(tmp_path, 3) as job:
        command = write(tmp_path, POISON.format(harm=harm))
        for name in "abcd":
            job.start(name, command)
        job.until(lambda: job.coordinator and job.coordinator.poll() is not None, "the job ends")
        found = ends(job)
        ended = (tmp_path / "coordinator.log").read_text()
    assert "two workers failed on the same samples (" in ended
    assert words in ended
    stopped = [end for end in found.values() if "two workers failed on the same samples" in end.sentence]
    assert len(stopped) >= 2, found
    assert all(end.code == 1 for end in stopped)


def test_an_exception_after_the_loop_is_no_fault_of_the_last_samples(tmp_path: Path):
    """badinput-1: both raise, and the job is not said to have failed on samples."""
    body = LOOP.format(harm="pass", stall=60).replace("finish()", "raise OSError('no room to save')")
    found = run(tmp_path, body)
    assert [end.code for end in found.values()] == [1, 1]
    assert all(end.sentence == "OSError: no room to save" for end in found.values())
    told = "\n".join(messages(tmp_path))
    assert "failed: OSError: no room to save" in told
    assert "same samples" not in told


def test_long_work_after_the_loop_is_no_hang(tmp_path: Path):
    """badinput-1"""
    body = LOOP.format(harm="pass", stall=1).replace("finish()", "time.sleep(4); finish()")
    found = run(tmp_path, body)
    assert [end.code for end in found.values()] == [0, 0], found


CAUGHT = """
job = elastic.init()
model, optimizer = job.wrap(model, optimizer)


def main():
    try:
        for batch in job.shards(data, batch_size=16, epochs=125):
            if job.step == 20:
                raise ValueError("a fault")
            time.sleep(0.1)  # so that steps are heard to be committed
            step(batch)
    except ValueError:
        return 3
    finish()
    return 0


sys.exit(main())
"""


def test_workers_that_all_end_with_an_exit_code_are_no_success(tmp_path: Path):
    """badinput-1: an error that `main` turns into an exit code, in all workers."""
    with ForkedJob(tmp_path, 2) as job:
        command = write(tmp_path, CAUGHT)
        for name in ("a", "b"):
            job.start(name, command)
        assert {name: job.wait(name, 120.0) for name in "ab"} == {"a": 3, "b": 3}
        assert job.coordinator is not None
        assert job.coordinator.poll() is None, "the restart policy decides"
        for name in ("a", "b"):
            job.start(name, command)
        codes = {name: job.wait(name, 120.0) for name in "ab"}
        assert job.coordinator.wait(30.0) == 4
    assert 0 not in codes.values(), codes
    said = (tmp_path / "a.log").read_text()
    assert "there is no checkpoint to go on from" in said
    assert "it ended with exit code 3" in "\n".join(messages(tmp_path))
    assert "SystemExit: 0" not in said


AFTERWARDS = """
import pathlib
job = elastic.init(checkpoint={folder!r})
model, optimizer = job.wrap(model, optimizer)
for batch in job.shards(data, batch_size=16, epochs=3):
    step(batch)
attempt = pathlib.Path({folder!r}, who + ".attempt")
if who == "b" and not attempt.exists():
    attempt.touch()
    raise OSError("no room to save")
pathlib.Path({folder!r}, who + ".saved").touch()
finish()
"""


def test_a_worker_that_fails_to_save_its_model_is_restarted_to_save_it(tmp_path: Path):
    """badinput-1: its peer has finished; the checkpoint of the last step is always there."""
    kept = tmp_path / "kept"
    kept.mkdir()
    with ForkedJob(tmp_path, 2) as job:
        command = write(tmp_path, AFTERWARDS.format(folder=str(kept)))
        for name in ("a", "b"):
            job.start(name, command)
        assert {name: job.wait(name, 120.0) for name in "ab"} == {"a": 0, "b": 1}
        assert job.coordinator is not None
        assert job.coordinator.poll() is None, "b has not finished"
        job.start("b", command)
        assert job.wait("b", 120.0) == 0
        assert job.coordinator.wait(30.0) == 0
    assert (kept / "b.saved").exists()
    assert "resumed from the checkpoint of step 12" in (tmp_path / "b.log").read_text()
