"""The processes of a search: answers, faults, deaths, limits, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phobos.tuning import workers
from phobos.tuning.workers import Pool, WorkerDied, WorkerFailed

ROOT = Path(__file__).resolve().parent.parent.parent
TASKS = "tests.tuning.worker_tasks"


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_answers_faults_and_deaths() -> None:
    with Pool(1, TASKS, task_seconds=1.0) as pool:
        first = pool.submit("identity").result()
        assert first != os.getpid()
        assert [pool.submit("add", i, i).result() for i in range(20)] == [2 * i for i in range(20)]
        with pytest.raises(WorkerFailed, match="ValueError: no good"):
            pool.submit("fail", "no good").result()
        assert pool.submit("talk").result() == "quiet"
        assert pool.submit("identity").result() == first
        with pytest.raises(WorkerDied, match="ended with status 3"):
            pool.submit("die", 3).result()
        second = pool.submit("identity").result()
        assert second not in (first, os.getpid())
        begin = time.monotonic()
        with pytest.raises(WorkerDied, match="more than 1 s"):
            pool.submit("sleep", 30).result()
        assert time.monotonic() - begin < 10
        last = pool.submit("identity").result()
    assert not any(alive(process) for process in (first, second, last))


def test_closing_ends_running_tasks_at_once() -> None:
    begin = time.monotonic()
    with Pool(2, TASKS) as pool:
        process = pool.submit("identity").result()
        futures = [pool.submit("sleep", 60) for _ in range(6)]
        time.sleep(0.1)
    assert time.monotonic() - begin < 10 and not alive(process)
    assert sum(f.cancelled() for f in futures) >= 4


@pytest.mark.parametrize("executable", ["", "/nowhere/python"])
def test_without_processes_threads_do_the_work(executable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.sys, "executable", executable)
    with Pool(2, TASKS) as pool:
        assert {pool.submit("identity").result() for _ in range(4)} == {os.getpid()}
        assert pool.submit("add", 1, 2).result() == 3


def test_an_interrupted_start_is_not_taken_for_no_processes() -> None:
    """Else the thread does the task itself, and Ctrl-C does not end it."""
    with Pool(1, "tests.tuning.worker_interrupted") as pool, pytest.raises(WorkerDied, match="ended with status -2"):
        pool.submit("identity").result()


def test_after_the_end_no_thread_does_a_task_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(1, TASKS)

    def no_process(module: str) -> None:
        pool.close()
        raise OSError("no process")

    monkeypatch.setattr(workers, "_Process", no_process)
    with pytest.raises(WorkerDied, match="over"):
        pool.submit("identity").result()


_SCRIPT = """
from phobos.tuning.workers import Pool
print("main module runs")
pool = Pool(1, "tests.tuning.worker_tasks")
print(pool.submit("add", 20, 22).result())
pool.close()
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_a_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    found = subprocess.run(
        [sys.executable, str(script)], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.split("\n")[:2] == ["main module runs", "42"] and found.stderr == ""


_INTERRUPTED = """
import sys
from phobos.tuning.workers import Pool, result
try:
    with Pool(2, "tests.tuning.worker_tasks") as pool:
        processes = {pool.submit("identity").result() for _ in range(8)}
        future = pool.submit("sleep", 60)
        pool.submit("sleep", 60)
        print(*processes, flush=True)
        result(future)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_is_clean() -> None:
    """The signal goes to the whole process group, as a terminal sends it."""
    child = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    assert child.stdout is not None
    processes = [int(word) for word in child.stdout.readline().split()]
    assert processes
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out.strip(), err) == (0, "interrupted", "")
    assert not any(alive(process) for process in processes)
