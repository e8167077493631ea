"""Workers that fail of themselves: each way is told from the others, named once, and costs one worker; a
sample on which all of them fail costs two, and then the job."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from shoal.testing.elastic import ElasticJob
from tests.elastic.bad.reports import messages
from tests.elastic.bad.scripts import ends, run, write

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
        ("torch.empty(1 << 50)", "DefaultCPUAllocator: can't allocate memory"),
        ("bytearray(1 << 60)", "MemoryError"),
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
    assert "failed" not in told


@pytest.mark.parametrize(
    "harm", ["ctypes.PyDLL(None).sleep(60)", "time.sleep(60)"], ids=["GIL", "waits"]
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
        ("os.abort()", "it crashed: Aborted"),
    ],
    ids=["raises", "segfault", "abort"],
)
def test_a_sample_that_ends_every_worker_ends_the_job_and_is_named(
    tmp_path: Path, harm: str, words: str
):
    """badinput-2. Two of four pay for it; the others are told."""
    with ElasticJob(tmp_path, 3) as job:
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
