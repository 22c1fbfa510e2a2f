"""A whole search through the real cuda-bindings, over a driver library that simulates a clock."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

PROGRAM = '''
import os
import numpy as np
import phobos
from phobos.runtime import module

k = phobos.jit("""
@launch(32)
@autotune(B in [32, 512])
kernel saxpy(X: tensor<f32>[N], Y: tensor<f32>[N], a: f32) {
  let i = ctx.block.x * B
  Y[i :+ B] = a * X[i :+ B] + Y[i :+ B]
}
""")
os.environ["STUB_ORDER"] = "".join(getattr(a, "name", "s") for a in k.compile({"B": 32}).program.args)
x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
driver = module.get_driver()


class Device:
    """Device memory of another library."""

    def __init__(self, array, offset):
        memory = driver.allocate(array.nbytes + offset)
        self.array, self.pointer = array, memory + offset
        driver.copy_in(self.pointer, array.ctypes.data, array.nbytes)
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (self.pointer, False), "version": 3, "stream": 2,
        }

    def get(self):
        out = np.empty_like(self.array)
        driver.copy_out(out.ctypes.data, self.pointer, out.nbytes)
        return out


dx, dy = Device(x, 0), Device(y, 4)
for arguments in ((dx, dy), (x, y)):
    result = k.search(*arguments, 2.0, fresh=True)
    times = {o.config["B"]: round(o.microseconds, 3) for o in result.timed}
    assert times == {256: 4, 128: 8, 64: 16, 32: 32, 512: 102}, result.text()
    assert result.best == {"B": 256} and result.reference == "the float64 reference"
assert (dy.get() == 1).all() and (y == 1).all()
k(dx, dy, 2.0)
assert (dy.get() == 2 * x + 1).all()
assert "stored best" in k.compile(dims={"N": 1000}).report
assert driver.current_device() == 0
print(result.summary())
'''


def test_a_search_through_cuda_bindings(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux")
    library = str(tmp_path / "libcuda.so.1")
    flags = ["-shared", "-fPIC", "-O1", "-w", "-ldl", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([compiler, str(HERE / "timing_driver.c"), "-o", library, *flags], check=True, timeout=60)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("saxpy: best B=256, 4.00 us; 5 timed, 0 skipped of 5")
