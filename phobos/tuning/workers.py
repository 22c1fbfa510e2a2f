"""Processes that look at and compile candidates, one task at a time each.

They are plain child processes of the interpreter with a pipe, not `multiprocessing`: its spawn imports the caller's
main module again, which runs a script that has no `__main__` guard a second time. A thread here feeds each process;
where no process can be started the thread does the work itself. A process that dies or takes too long costs its task
and is replaced.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

_LENGTH = struct.Struct("<Q")
_READY = "ready"
# Python and the compiler's modules are loaded in well under a second; a loaded machine may take longer.
_START_SECONDS = 60.0
_LOOK_SECONDS = 0.2  # between looks for Ctrl-C

Tasks = Mapping[str, Callable[..., Any]]


class WorkerDied(Exception):
    """A process ended, or was ended, before it answered. The text says how."""


class WorkerInterrupted(WorkerDied):
    """Ctrl-C reached a process that had not left the terminal's process group yet."""


class WorkerFailed(Exception):
    """A task raised in its process. The text names the exception."""


def result(future: Future[Any]) -> Any:
    """`future.result()`, which Ctrl-C can end at any moment.

    A signal that arrives after Python last looked for one and before the thread sleeps would wait as long as the thread
    does (seen in 1 of 30 interrupts on a busy machine), so it sleeps a little at a time.
    """
    while not future.done():
        wait([future], _LOOK_SECONDS)
    return future.result()


def next_done(finished: SimpleQueue[Future[Any]]) -> Future[Any]:
    """`finished.get()`, likewise."""
    while True:
        try:
            return finished.get(timeout=_LOOK_SECONDS)
        except Empty:
            continue  # nothing yet: Python has looked for signals, and waits again


class Pool:
    """`count` processes for the functions of `tasks_module` (its dict `TASKS`).

    `task_seconds`: a task that takes longer is given up and its process ended. Use as a context manager: at the end
    everything is over, at an exception too.
    """

    def __init__(self, count: int, tasks_module: str, *, task_seconds: float = 120.0, processes: bool = True):
        self.count = max(1, count)
        self.task_seconds = task_seconds
        self._module = tasks_module
        self._processes = processes and bool(sys.executable)
        self._lock = threading.Lock()
        self._running: set[_Process] = set()
        self._closed = False
        self._local = threading.local()
        self._executor = ThreadPoolExecutor(self.count, thread_name_prefix="phobos-tuning")
        self._tasks: Tasks | None = None

    def submit(self, task: str, *args: Any) -> Future[Any]:
        """The future of `TASKS[task](*args)`; it may raise WorkerDied or WorkerFailed."""
        return self._executor.submit(self._run, task, args)

    def _run(self, task: str, args: tuple[Any, ...]) -> Any:
        process = self._process()
        if process is None:
            return self._own_tasks()[task](*args)
        try:
            return process.call(task, args, self.task_seconds)
        except WorkerDied:
            self._local.process = None
            with self._lock:
                self._running.discard(process)
            raise

    def _own_tasks(self) -> Tasks:
        with self._lock:
            if self._tasks is None:
                self._tasks = tasks_of(self._module)
            return self._tasks

    def _process(self) -> "_Process | None":
        """This thread's process, started at its first task and after one died; None where none can be started."""
        found: _Process | None = getattr(self._local, "process", None)
        if found is not None or not self._processes:
            return found
        try:
            found = _Process(self._module)
        except WorkerInterrupted:
            raise
        except (OSError, WorkerDied):
            with self._lock:
                if self._closed:
                    raise WorkerDied("the search is over") from None
            self._processes = False  # in the other threads too: what stops one process stops all
            return None
        with self._lock:
            if self._closed:
                found.kill()
                raise WorkerDied("the search is over")
            self._running.add(found)
        self._local.process = found
        return found

    def close(self) -> None:
        """Ends every process and forgets tasks that have not begun."""
        with self._lock:
            self._closed = True
            running, self._running = self._running, set()
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.kill()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Process:
    """One child process. Raises WorkerDied where it does not come up, OSError where it cannot be started."""

    def __init__(self, module: str) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "phobos.tuning.workers", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # a Ctrl-C in the terminal is for the parent alone
        )
        if self._exchange(None, _START_SECONDS) != _READY:
            self.kill()
            raise WorkerDied("a worker process does not answer")

    def call(self, task: str, args: tuple[Any, ...], seconds: float) -> Any:
        good, value = self._exchange((task, args), seconds)
        if not good:
            raise WorkerFailed(value)
        return value

    def _exchange(self, message: Any, seconds: float) -> Any:
        """Sends a message (None: nothing) and waits for the answer."""
        assert self._child.stdin is not None and self._child.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._child.kill()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            if message is not None:
                _write(self._child.stdin, message)
            return _read(self._child.stdout)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            self.kill()
            if late.is_set():
                raise WorkerDied(f"it took more than {seconds:.0f} s") from None
            kind = WorkerInterrupted if self._child.returncode == -signal.SIGINT else WorkerDied
            raise kind(f"the compiling process ended with status {self._child.returncode}") from None
        finally:
            timer.cancel()

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # what was buffered cannot be delivered any more
                continue


def _write(pipe: BinaryIO | Any, message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _read(pipe: BinaryIO | Any) -> Any:
    """Raises EOFError at the end of the stream."""
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(header)
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


def tasks_of(module: str) -> Tasks:
    from importlib import import_module

    tasks: Tasks = import_module(module).TASKS
    return tasks


def main(module: str) -> None:
    """The child: answers messages until its input ends."""
    # Answers have the descriptor for themselves; whatever prints goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    tasks = tasks_of(module)
    _write(answers, _READY)
    while True:
        try:
            task, args = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (True, tasks[task](*args))
        except Exception as error:  # noqa: BLE001
            answer = (False, f"{type(error).__name__}: {error}")
        _write(answers, answer)


if __name__ == "__main__":
    main(sys.argv[1])
