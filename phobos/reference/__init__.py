"""NumPy interpreter of the typed tile IR: the oracle for every executor, and where kernels run without a GPU."""

from phobos.reference.interpreter import DEFAULT_MAX_STEPS, RunResult, run

__all__ = ["DEFAULT_MAX_STEPS", "RunResult", "run"]
