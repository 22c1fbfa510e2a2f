"""A module of tasks whose process Ctrl-C ends before it answers (it had not left the group of the terminal yet)."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)

TASKS: dict[str, Any] = {"identity": os.getpid}
