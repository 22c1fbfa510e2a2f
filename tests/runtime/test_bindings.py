"""The driver layer through the real cuda-bindings, over a driver library that needs no GPU."""

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
import numpy as np
import phobos
from phobos.ir.abi import DimArg
from phobos.runtime import module

k = phobos.jit("""
@launch(64)
kernel saxpy(X: tensor<f32>[N], Y: tensor<f32>[N], a: f32) {
  let i = ctx.block.x * 64
  Y[i :+ 64] = a * X[i :+ 64] + Y[i :+ 64]
}
""")
c = k.compile()
assert c.arch == "sm_90a", c.arch
import os
os.environ["STUB_ORDER"] = "".join(getattr(a, "name", "s") for a in c.program.args)
x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
k(x, y, 2.0)
assert (y == 2 * np.arange(100) + 1).all(), y
k(x[::2], y[::-2], 0.5, stream=7)


class Device:
    """Device memory of another library."""

    def __init__(self, array):
        driver = module.get_driver()
        self.array, self.pointer = array, driver.allocate(array.nbytes)
        driver.copy_in(self.pointer, array.ctypes.data, array.nbytes)
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (self.pointer, False), "version": 3, "stream": 9,
        }

    def get(self):
        out = np.empty_like(self.array)
        module.get_driver().copy_out(out.ctypes.data, self.pointer, out.nbytes)
        return out


dx, dy = Device(x), Device(np.zeros(100, np.float32))
k(dx, dy, 3.0)
k(dx, dy, 1.0, stream=5)
k.prepare(dx, dy, 4.0)()
assert (dy.get() == 8 * x).all(), dy.get()
driver = module.get_driver()
try:
    driver.call("cuModuleLoadData", b"no cubin")
except phobos.LaunchError as error:
    print(error.diagnostics[0].message)
with driver.current(0):
    assert driver.current_device() == 0
f = module.load_function(driver, 0, c.binary, dynamic_shared=100000)
assert f.max_threads == 1024 and f.registers == 32
print(driver.device(0).name, driver.device(0).target.arch)
'''


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux")
    folder = tmp_path_factory.mktemp("stub")
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-w",
        "-o",
        str(folder / "libcuda.so.1"),
        str(HERE / "stub_driver.c"),
    ]
    subprocess.run([*command, "-ldl", "-Wl,-soname,libcuda.so.1"], check=True, timeout=60)
    return folder


def run(stub: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("cuda.bindings")
    # Unbuffered, so that what Python and the library print comes in order.
    variables = {**os.environ, "LD_LIBRARY_PATH": str(stub), "PYTHONUNBUFFERED": "1", **environment}
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT, env=variables, timeout=120
    )


def test_calls_through_cuda_bindings(stub: Path) -> None:
    done = run(stub, PROGRAM)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("function")]
    launch = "launch ({}, 1, 1) x (64, 1, 1), shared 0, stream {}, a = {}, N = {}"
    assert lines == [
        launch.format(2, "(nil)", "2", 100),
        launch.format(1, "0x7", "0.5", 50),
        launch.format(2, "0x9", "3", 100),
        "record 0x30 on 0x9",
        "0x5 waits for 0x30",
        launch.format(2, "0x5", "1", 100),
        launch.format(2, "0x9", "4", 100),
        "cuModuleLoadData failed: CUDA_ERROR_INVALID_IMAGE (text of the stub)",
        "attribute 8 = 100000",
        "Stub GPU sm_90a",
    ]


def test_no_device(stub: Path) -> None:
    text = (
        "from phobos.runtime import module\n"
        "import phobos\n"
        "assert not module.device_available()\n"
        "try:\n    module.get_driver()\n"
        "except phobos.LaunchError as error:\n    print(error.diagnostics[0].code)\n"
    )
    done = run(stub, text, STUB_DEVICES="0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "PH0921\n", "")
