"""Tasks of the worker processes' tests."""

from __future__ import annotations

import os
import sys
import time
from typing import Any


def add(a: int, b: int) -> int:
    return a + b


def identity() -> int:
    return os.getpid()


def fail(text: str) -> None:
    raise ValueError(text)


def die(status: int) -> None:
    os._exit(status)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def talk() -> str:
    print("to standard output")
    sys.stdout.flush()
    os.write(1, b"to descriptor 1\n")
    return "quiet"


TASKS: dict[str, Any] = {"add": add, "identity": identity, "fail": fail, "die": die, "sleep": sleep, "talk": talk}
