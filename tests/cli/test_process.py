"""The command line as its users meet it: a process. Start-up, pipes, signals, other folders."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAXPY = str(ROOT / "examples" / "saxpy_fp32.ph")
FLASH = str(ROOT / "examples" / "flash_attention_fp32.ph")
PHOBOS = [sys.executable, "-m", "phobos"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PHOBOS_CACHE_DIR": str(tmp_path / "cache")}


def test_from_another_folder(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*PHOBOS, "compile", SAXPY, "--arch", "sm_80", "-o", "k.cubin"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "k.cubin").read_bytes()[:4] == b"\x7fELF"


def seconds(args: list[str], environment: dict[str, str]) -> float:
    """Wall time of a command, or its processor time where that is less: other work on the machine does not count."""
    begin, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*PHOBOS, *args], env=environment, check=True, capture_output=True, timeout=60)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return min(wall, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime)


@pytest.mark.parametrize("file, cold_limit", [(SAXPY, 1.2), (FLASH, 2.0)], ids=["saxpy", "flash"])
def test_wall_time(file: str, cold_limit: float, environment: dict[str, str], tmp_path: Path) -> None:
    """Cold (an empty cache) and from the cache, Python's start included; the best of three."""
    args = ["compile", file, "--arch", "sm_90a"]
    cold = min(seconds(args, {**environment, "PHOBOS_CACHE_DIR": str(tmp_path / str(i))}) for i in range(3))
    seconds(args, environment)
    hit = min(seconds(args, environment) for _ in range(3))
    print(f"{Path(file).name}: cold {cold:.2f} s, cache hit {hit:.2f} s")
    assert cold < cold_limit
    assert hit < 0.6


@pytest.mark.parametrize(
    "args, absent",
    [
        (["--help"], {"numpy", "lark", "jinja2", "rich", "cuda", "torch"}),
        (["compile", SAXPY, "--arch", "sm_80"], {"numpy", "lark", "rich", "cuda", "torch"}),
    ],
    ids=["help", "a cache hit"],
)
def test_imports_are_lazy(args: list[str], absent: set[str], environment: dict[str, str]) -> None:
    if args[0] == "compile":
        subprocess.run([*PHOBOS, *args], env=environment, check=True, capture_output=True, timeout=60)
    code = (
        "import sys\nfrom phobos.cli import cli\n"
        f"try:\n    cli.main({args!r})\nexcept SystemExit as e:\n    assert not e.code, e.code\n"
        "print(' '.join(sorted({m.split('.')[0] for m in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert absent & set(done.stderr.split()) == set()


def test_a_reader_that_goes_away(environment: dict[str, str]) -> None:
    """As in `phobos ... | head -1`: status 141 as of a process ended by SIGPIPE, and nothing on standard error."""
    code = (
        "import sys\nfrom phobos import cli\n"
        "import phobos.commands.compile as c\n"
        "c.emit = lambda request, stage: b'x' * 10_000_000\n"
        f"cli.cli.main(['compile', {SAXPY!r}, '--emit', 'cuda'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(30), errors) == (141, b"")


def test_interrupt(environment: dict[str, str], tmp_path: Path) -> None:
    pipe = tmp_path / "k.ph"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [*PHOBOS, "compile", str(pipe)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    while True:  # a pipe can be opened for writing once the process waits at its other end
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    os.close(writer)
    assert (process.returncode, out, errors.strip()) == (130, b"", b"interrupted")


def test_python_dash_m_is_phobos(environment: dict[str, str]) -> None:
    done = subprocess.run([*PHOBOS, "--version"], env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stdout.startswith("phobos 0.")
