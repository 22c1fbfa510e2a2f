"""The CUDA prelude: selection of parts, the reference of helpers, and that every text compiles for every
architecture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from emulator.support import KERNELS, compile_cuda, kernel_text
from emulator.test_emulator_conversions import TYPES
from emulator.test_emulator_math import FAST, UNARY, text_of

from phobos.codegen import prelude
from phobos.resources import templates_dir
from phobos.target import ARCHITECTURES

FOLDER = templates_dir() / "prelude"


def test_only_the_parts_in_use_are_printed() -> None:
    assert prelude.parts_of("") == ("core",)
    assert prelude.parts_of("x = ph_ldv<V>(p, 0);") == ("core", "vector")
    assert prelude.parts_of("ph_cvt<float>(x)") == ("core", "rounding", "half", "convert")
    assert "float8" in prelude.parts_of("ph_f8e4m3 x; ph_cvt<float>(x)")
    assert prelude.parts_of("ph_fast_exp(x)") == ("core", "math", "math_fast")
    assert prelude.parts_of("not_ph_exp(x); aph_exp(x)") == ("core",)
    small = prelude.select("ph_tid()", dynamic_shared=False, shared_bytes=0)
    assert "ph_smem_base" in small and "#define PH_SHARED" not in small and len(small) < 5000


def test_shared_memory_is_static_or_dynamic() -> None:
    static = prelude.select("ph_smem<float>(0)", dynamic_shared=False, shared_bytes=4096)
    assert "#define PH_SHARED_BYTES 4096\n#define PH_SHARED_ALIGN 128\n" in static
    tiles = prelude.select("ph_mbar_wait(b, 0)", dynamic_shared=False, shared_bytes=4096)
    assert "#define PH_SHARED_ALIGN 1024\n" in tiles
    assert "#define PH_SHARED_DYNAMIC 1\n" in prelude.select("", dynamic_shared=True, shared_bytes=4096)


def test_parts_stand_after_what_they_need_and_include_nothing() -> None:
    parts = prelude.parts()
    assert tuple(parts) == prelude.PARTS
    for i, name in enumerate(prelude.PARTS):
        assert set(parts[name].needs) <= set(prelude.PARTS[:i])
        assert not re.search(r"^\s*#\s*include", parts[name].text + parts[name].host_text, re.MULTILINE)
    files = {p.name.split(".")[0] for p in FOLDER.glob("*.cuh*")}
    assert files == set(prelude.PARTS)
    assert {p.stem for p in (FOLDER / "host").glob("*.h")} <= files


def test_every_helper_is_in_the_reference_and_every_name_of_the_reference_exists() -> None:
    reference = (FOLDER / "HELPERS.md").read_text(encoding="utf-8")
    expanded = reference
    # `ph_ctaid_x() _y() _z()` and `_x1/_x2/_x4[_trans]` are short forms
    short = [f"{stem}_{axis}" for stem in ("ph_ctaid", "ph_nctaid") for axis in "xyz"]
    short += [f"ph_ldmatrix_x{n}{t}" for n in (1, 2, 4) for t in ("", "_trans")]
    short += [f"ph_wgmma_{a}_{t}" for a in ("ss", "rs") for t in ("f16", "bf16")]
    expanded += " ".join(short)
    named = set(re.findall(r"\b(?:ph|PH)_\w+", expanded))
    internal = {"ph_bits", "ph_soff", "ph_tmap"} | {h for h, p in prelude.helpers().items() if p == ("rounding",)}
    provided = set(prelude.helpers())
    assert provided - named - internal == set()
    assert {n for n in named - provided if not n.endswith("_")} == set()


CONVERSIONS = "\n".join(
    f"PH_KERNEL(32, 1) c{i}_{j}(ph_global<const {a.name}> X, ph_global<{b.name}> Y) "
    f"{{ const {a.name} x = X[ph_tid()]; Y[ph_tid()] = ph_cvt<{b.name}>(x); }}"
    for i, a in enumerate(TYPES)
    for j, b in enumerate(TYPES)
)
REST = """
PH_KERNEL_REGS(64, 2, 40) rest(ph_global<int> PH_RESTRICT Y, ph_global<float> PH_RESTRICT Z) {
  ph_printf("%d\\n", ph_tid());
  if (PH_GUARD(ph_tid() > 64)) ph_assert_fail("small", 3);
  const int a = ph_wrap_add(Y[0] + 0, ph_idiv(ph_tid(), 3));
  Y[1] = ph_shl(a, 2);
  const float x = Z[0];
  Z[1] = ph_clamp(x, 0.f, 1.f) + ph_pow(x, 2.f) + ph_fast_div(x, 3.f) + ph_fast_pow(x, 3.f) + ph_mod(x, 2.f);
  ph_bar_arrive(2, 64);
  ph_bar_sync(2, 64);
  ph_cp_async16(ph_smem<float>(0), Z, true);
  ph_cp_async8(ph_smem<float>(16), ph_origin(Z), x > 0.f);
  ph_cp_async4(ph_smem<float>(32), Z);
  ph_cp_commit();
  ph_cp_wait<0>();
}"""


MATH = text_of([*UNARY, *FAST], "float") + text_of([*UNARY, *FAST], "double").replace("math(", "math64(")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_everything_compiles(arch: str) -> None:
    number = int(re.sub(r"\D", "", arch))
    texts = [REST, kernel_text("unit_types"), kernel_text("reduce")]
    texts.append(kernel_text("flash_mma"))  # on sm_75: halves of the product, copies by loads
    if number >= 80:
        texts += [kernel_text("unit"), kernel_text("unit_wmma")]
    if number >= 89:
        texts.append(kernel_text("unit_narrow"))
    if arch == "sm_90a":
        texts += [
            kernel_text("unit_hopper"),
            kernel_text("flash_wgmma"),
            kernel_text("flash_ws"),
            kernel_text("gemm_fma"),
        ]
    for text in texts:
        assert len(compile_cuda(text, arch, shared=16384)) > 1000
    assert len(compile_cuda(REST, arch, shared=0, dynamic=True)) > 1000
    # no inline assembly differs between the newer ones here, so PTX is enough for most of them
    for text in (CONVERSIONS, MATH):
        assert len(compile_cuda(text, arch, shared=0, ptx=arch not in ("sm_75", "sm_90a"))) > 1000


def test_every_helper_is_used_in_some_text() -> None:
    others = Path(__file__).parent.glob("test_emulator_*.py")
    texts = [CONVERSIONS, REST, *(p.read_text(encoding="utf-8") for p in [*KERNELS.glob("*.cu"), *others])]
    used = set(re.findall(r"\b(?:ph|PH)_\w+", " ".join(texts)))
    internal = {"ph_bits", "ph_soff", "ph_tmap"} | {h for h, p in prelude.helpers().items() if p == ("rounding",)}
    assert set(prelude.helpers()) - internal - used == set()


def test_all_kernel_texts_are_compiled() -> None:
    known = {
        "unit", "unit_types", "unit_wmma", "unit_narrow", "unit_hopper",
        "reduce", "gemm_fma", "flash_mma", "flash_wgmma", "flash_ws",
    }  # fmt: skip
    assert {p.stem for p in KERNELS.glob("*.cu")} == known


@pytest.mark.parametrize(
    ("vector", "suffix"),
    (
        ("float, 4", "v4.u32"),
        ("ph_half, 8", "v4.u32"),
        ("double, 2", "v4.u32"),
        ("unsigned char, 8", "v2.u32"),
        ("ph_bf16, 2", "u32"),
    ),
)
def test_a_vector_is_one_access(vector: str, suffix: str) -> None:
    element = vector.split(",")[0]
    text = f"""PH_KERNEL(32, 1) k(ph_global<{element}> X, ph_global<{element}> Y) {{
  typedef ph_vec<{vector}> V;
  const ph_shared<{element}> s = ph_smem<{element}>(0);
  const V v = ph_ldv<V>(X, ph_tid() * 16);
  ph_stv(s, ph_tid() * 16, v);
  ph_syncthreads();
  const V u = ph_ldv<V>(s, 512 - ph_tid() * 16);
  ph_stv(Y, ph_tid() * 16, u);
}}"""
    ptx = compile_cuda(text, "sm_90a", shared=8192, ptx=True).decode()
    for operation in ("ld.global", "st.shared", "ld.shared", "st.global"):
        found = re.findall(rf"{re.escape(operation)}\S*", ptx)
        assert len(found) == 1 and found[0].replace(".b32", ".u32").endswith(suffix), (operation, found)


def test_default_exp_exp2_and_log_make_no_calls() -> None:
    ptx = compile_cuda(
        text_of(["ph_exp", "ph_exp2", "ph_log", "ph_log2"], "float"), "sm_90a", shared=0, ptx=True
    ).decode()
    assert "call" not in ptx
    # two conversions, a reduction in two steps and one exponential make the whole of exp
    one = compile_cuda(text_of(["ph_exp"], "float"), "sm_90a", shared=0, ptx=True).decode()
    assert one.count("ex2.approx") == 1 and len(re.findall(r"\b(?:fma|add|mul|shl)\S*(?:f32|b32)\s", one)) <= 8
