"""NVRTC: real compiles for every architecture, resource usage, errors."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from phobos.diagnostics import CompileError
from phobos.ir.abi import Program
from phobos.ir.dims import DimConst
from phobos.runtime import nvrtc
from phobos.target import ARCHITECTURES, get_target

SAXPY = """
#line 3 "saxpy.ph"
extern "C" __global__ void __launch_bounds__(128) saxpy(float* y, const float* x, float a, int n) {
  __shared__ float s[96];
  int i = blockIdx.x * 128 + threadIdx.x;
  if (threadIdx.x < 96) s[threadIdx.x] = a;
  __syncthreads();
  if (i < n) y[i] += s[i % 96] * x[i];
}
"""


def program(body: str = SAXPY, **changes: object) -> Program:
    base = Program(
        name="saxpy",
        source_name="saxpy.ph",
        body=body,
        prelude="",
        args=(),
        threads=128,
        grid=(DimConst(1), DimConst(1), DimConst(1)),
        shared_bytes=384,
        dynamic_shared=False,
        index_bits=32,
        granule=4,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def elf_architecture(cubin: bytes) -> int:
    """The compute capability in a cubin's ELF header flags (bits 8 to 15 since CUDA 13, else 0 to 7)."""
    (flags,) = struct.unpack_from("<I", cubin, 48)
    return (flags >> 8) & 0xFF if (flags >> 8) & 0xFF in (75, 80, 86, 89, 90, 100, 120) else flags & 0xFF


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture(arch: str) -> None:
    target = get_target(arch)
    binary = nvrtc.compile_program(program(), target, use_cache=False)
    assert binary.cubin[:4] == b"\x7fELF"
    assert elf_architecture(binary.cubin) == target.capability[0] * 10 + target.capability[1]
    assert f".target {arch}" in binary.ptx and "saxpy" in binary.ptx
    assert binary.entry == "saxpy"
    assert binary.static_shared_bytes == 96 * 4
    assert 6 <= binary.registers <= 64
    assert binary.spill_bytes == 0 and binary.stack_bytes == 0
    assert binary.seconds > 0 and not binary.from_cache


def test_spills_and_stack() -> None:
    # 128 live floats per thread cannot stay in the 32 registers that 2048 resident threads leave.
    lines = "\n".join(f"  float v{i} = x[i * {i + 3} + n];" for i in range(128))
    sums = " + ".join(f"v{i} * y[v{(i + 1) % 128} > 0 ? {i} : i]" for i in range(128))
    body = (
        'extern "C" __global__ void __launch_bounds__(1024, 2) k(float* y, const float* x, int n) {\n'
        f"  int i = threadIdx.x;\n{lines}\n  __syncthreads();\n  y[i] = {sums};\n}}"
    )
    binary = nvrtc.compile_program(program(body, name="k"), get_target("sm_90a"), use_cache=False)
    assert binary.registers <= 32
    assert binary.spill_bytes > 0 and binary.stack_bytes > 0
    codes = [d.code for d in nvrtc.warning_diagnostics(binary, "k")]
    assert "PH0603" in codes


def test_indexed_array_has_stack_and_no_spill() -> None:
    body = """extern "C" __global__ void k(float* y, int n) {
      float a[64];
      for (int i = 0; i < 64; i++) a[i] = y[i * n];
      for (int i = 0; i < n; i++) a[(i * n) & 63] += a[(i * 7) & 63];
      y[threadIdx.x] = a[n & 63];
    }"""
    binary = nvrtc.compile_program(program(body, name="k"), get_target("sm_80"), use_cache=False)
    assert binary.stack_bytes == 256
    assert binary.spill_bytes == 0


def test_serialized_wgmma_is_a_warning() -> None:
    # Reading an accumulator between issue and wait makes ptxas serialize.
    regs = ", ".join(f"%{i}" for i in range(4))
    asm = (
        'asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {' + regs + '}, %4, %5, 1, 1, 1, 0, 0;"\n'
        '    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(d), "l"(d));'
    )
    body = f"""extern "C" __global__ void __launch_bounds__(128) k(float* y, unsigned long long d) {{
      float c[4] = {{0, 0, 0, 0}};
      asm volatile("wgmma.fence.sync.aligned;");
      {asm}
      asm volatile("wgmma.commit_group.sync.aligned;");
      y[threadIdx.x] = c[0];
      asm volatile("wgmma.wait_group.sync.aligned 0;");
      y[threadIdx.x + 128] = c[1];
    }}"""
    binary = nvrtc.compile_program(program(body, name="k"), get_target("sm_90a"), use_cache=False)
    assert any("(C75" in w for w in binary.warnings), binary.log
    assert [d.code for d in nvrtc.warning_diagnostics(binary, "k")][0] == "PH0602"


def test_errors_point_into_the_kernel_text() -> None:
    body = '#line 7 "saxpy.ph"\nextern "C" __global__ void saxpy(float* y) {\n  y[0] = nothing;\n  y[1] = none;\n}'
    with pytest.raises(CompileError) as info:
        nvrtc.compile_program(program(body), get_target("sm_80"))
    found = info.value.diagnostics
    assert [d.code for d in found] == ["PH0601", "PH0601"]
    assert [d.span.line for d in found if d.span] == [8, 9]
    assert 'identifier "nothing" is undefined' in found[0].message
    assert found[0].span is not None and found[0].span.file == "saxpy.ph"


def test_ptxas_error_is_a_diagnostic() -> None:
    body = 'extern "C" __global__ void saxpy(float* y) { asm volatile("nonsense.u32 %0;" :: "r"(1)); }'
    with pytest.raises(CompileError) as info:
        nvrtc.compile_program(program(body), get_target("sm_80"))
    (found,) = info.value.diagnostics
    assert found.code == "PH0601"
    assert any("nonsense" in note for note in found.notes), found


def test_fast_math_changes_the_code_and_the_key() -> None:
    body = 'extern "C" __global__ void saxpy(float* y) { y[0] = y[1] / y[2]; }'
    target = get_target("sm_80")
    plain = nvrtc.compile_program(program(body), target)
    fast = nvrtc.compile_program(program(body, fast_math=True), target)
    assert not fast.from_cache
    assert "div.rn" in plain.ptx and "div.approx" in fast.ptx


def test_missing_library_names_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_loaded", None)
    monkeypatch.setattr(nvrtc, "library_path", lambda: None)
    monkeypatch.setattr(nvrtc, "library_fingerprint", lambda: "")
    with pytest.raises(CompileError) as info:
        nvrtc.compile_program(program(), get_target("sm_80"))
    (found,) = info.value.diagnostics
    assert found.code == "PH0910"
    assert found.help and found.help.startswith("pip install 'nvidia-cuda-nvrtc")


def test_damaged_library_is_a_diagnostic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "libnvrtc.so.13"
    path.write_bytes(b"not a library")
    monkeypatch.setattr(nvrtc, "_loaded", None)
    monkeypatch.setattr(nvrtc, "library_path", lambda: path)
    with pytest.raises(CompileError) as info:
        nvrtc.load_library()
    assert info.value.diagnostics[0].code == "PH0910"
    assert str(path) in info.value.diagnostics[0].message


def test_too_old_library(monkeypatch: pytest.MonkeyPatch) -> None:
    library = nvrtc.load_library()
    monkeypatch.setattr(type(library), "architectures", lambda self: (75, 80))
    with pytest.raises(CompileError) as info:
        nvrtc.compile_program(program(), get_target("sm_120a"), use_cache=False)
    assert info.value.diagnostics[0].code == "PH0911"
    assert "sm_75, sm_80" in info.value.diagnostics[0].notes[0]


def test_cache_returns_the_same_binary() -> None:
    target = get_target("sm_80")
    first = nvrtc.compile_program(program(), target)
    second = nvrtc.compile_program(program(), target)
    assert not first.from_cache and second.from_cache
    assert replace(second, from_cache=False) == first
    assert not nvrtc.compile_program(program(SAXPY + " "), target).from_cache
    assert not nvrtc.compile_program(program(), get_target("sm_86")).from_cache


def test_cache_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    target = get_target("sm_80")
    nvrtc.compile_program(program(), target)
    assert not nvrtc.compile_program(program(), target, use_cache=False).from_cache
    monkeypatch.setenv("PHOBOS_NO_CACHE", "1")
    assert not nvrtc.compile_program(program(), target).from_cache
