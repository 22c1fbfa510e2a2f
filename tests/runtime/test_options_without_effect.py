"""What an option asks for and no pass does is said, once, and is no error."""

import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import phobos
from phobos.cli import cli
from phobos.ir.options import OPTION_WORDS, WITHOUT_EFFECT

KERNEL = """@options({})
kernel f(A: tensor<f32>[N]) {{
  let p = ctx.block.x * 128
  A[p :+ 128] = A[p :+ 128] * 2.0
}}
"""


def _compiled(option):
    return phobos.jit(KERNEL.format(option)).compile(arch="sm_90a")


@pytest.mark.parametrize("option", [(name, value) for name, values in WITHOUT_EFFECT.items() for value in values])
def test_a_warning_and_a_line_of_the_report(option):
    compiled = _compiled(" = ".join(option))
    messages = [d.message for d in compiled.warnings if d.code == "PH0604"]
    assert messages == [f"the option {option[0]} = {option[1]} has no effect: {WITHOUT_EFFECT[option[0]][option[1]]}"]
    assert f"{option[0]} = {option[1]}" in compiled.report
    assert [w["code"] for w in compiled.to_json()["warnings"]] == ["PH0604"]


@pytest.mark.parametrize("option", ["order = linear", "persistent = auto", "swizzle = off", "vectorize = off"])
def test_silence_otherwise(option):
    assert _compiled(option).warnings == ()


def test_the_table_names_options():
    for name, values in WITHOUT_EFFECT.items():
        assert set(values) < set(OPTION_WORDS[name])


GEMM = """@options({options})
{attribute}
kernel g<T>(A: tensor<T>[M, K], B: tensor<T>[K, N], C: tensor<f32>[M, N]) {{
  var acc: tile<f32>[32, 32] = 0.0
  {promise} for k in range(0, K, {step}) {{
    acc += dot(A[0 :+ 32, k :+ {step}], B[k :+ {step}, 0 :+ 32])
  }}
  C[0 :+ 32, 0 :+ 32] = acc
}}
"""


def idle(options, dtype="f16", attribute="", step=32, promise="", arch="sm_90a"):
    """What is said to have no effect, by option."""
    text = GEMM.format(options=options, attribute=attribute, step=step, promise=promise)
    compiled = phobos.jit(text).compile(dtypes={"T": dtype}, arch=arch)
    found = [d.message.partition(" has no effect: ") for d in compiled.warnings if d.code == "PH0604"]
    return {what.removeprefix("the option "): reason for what, _, reason in found}


@pytest.mark.parametrize("option", ["matmul = wmma", "overlap = on", "stages = 3", "swizzle = on", "pad = on"])
def test_options_of_products_without_a_product(option):
    (warning,) = _compiled(option).warnings
    assert warning.message == f"the option {option} has no effect: the kernel has no product"


def test_shared_state_has_an_effect_where_an_operand_would_be_held():
    from phobos import resources

    text = (resources.examples_dir() / "flash_attention_fp16.ph").read_text()
    shared = phobos.jit(text.replace("kernel flash", "@options(state = shared)\nkernel flash")).compile(arch="sm_90a")
    held = "read once before the loop"
    assert held in phobos.jit(text).compile(arch="sm_90a").report and held not in shared.report
    assert [d.code for d in shared.warnings] == []


@pytest.mark.parametrize("attribute", ["@tensorcore", "@tensorcore(tf32, require)"])
def test_tensor_cores_without_a_product(attribute):
    (warning,) = phobos.jit(f"{attribute}\n" + KERNEL.partition("\n")[2].format()).compile(arch="sm_90a").warnings
    assert warning.code == "PH0604" and warning.message == "@tensorcore has no effect: the kernel has no product"


CANNOT = {
    "no room permutes": ({"options": "swizzle = on, matmul = wmma"}, "swizzle = on", "wmma permute no rows"),
    "rows do not fit": ({"options": "swizzle = on", "dtype": "f32"}, "swizzle = on", "products by fma permute no rows"),
    "permuted": ({"options": "pad = on"}, "pad = on", "permuted"),
    "own padding": ({"options": "pad = on", "dtype": "f32"}, "pad = on", "the same way without it"),
    "several k": ({"options": "overlap = on, matmul = fma"}, "overlap = on", "products by fma in this arrangement"),
    "one step": ({"options": "overlap = on", "step": 16}, "overlap = on", "k = 16 is a single step"),
    "through registers": (
        {"options": "stages = 3", "dtype": "f32", "attribute": "@tensorcore"}, "stages = 3",
        "is a tile ahead through registers, double buffer, because its elements are converted to f16",
    ),
    "no copies": ({"options": "stages = 3", "arch": "sm_75"}, "stages = 3", "sm_75 has no asynchronous copies"),
    "promised": ({"options": "stages = 3", "promise": "@pipeline(2)"}, "stages = 3", "`@pipeline` before the loop"),
}  # fmt: skip


@pytest.mark.parametrize("case", CANNOT)
def test_options_that_cannot_act_here(case):
    arguments, option, reason = CANNOT[case]
    found = idle(**arguments)
    assert list(found) == [option] and reason in found[option]


@pytest.mark.parametrize(
    "arguments",
    [
        {"options": "swizzle = on, overlap = on, stages = 3"},
        {"options": "pad = on, matmul = wmma, overlap = on"},
        {"options": "pad = on, matmul = fma"},
        {"options": "overlap = on", "dtype": "f32"},
        {"options": "stages = 2", "dtype": "f32", "attribute": "@tensorcore"},
        {"options": "overlap = off, stages = 1, swizzle = off, pad = off"},
    ],
)
def test_silence_where_they_act(arguments):
    assert idle(**arguments) == {}


@pytest.mark.parametrize("backend", ["reference", "emulator"])
def test_a_call_warns_once(backend):
    kernel = phobos.jit(KERNEL.format("overlap = on"))
    array = np.ones(300, np.float32)
    with pytest.warns(phobos.KernelWarning, match="PH0604.*overlap = on has no effect") as caught:
        kernel(array, backend=backend)
        kernel(array, backend=backend)
    assert len(caught) == 1 and caught[0].filename == __file__ and (array == 4).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        phobos.jit(KERNEL.format("order = linear"))(array, backend=backend)


@pytest.mark.parametrize("backend", ["reference", "emulator"])
def test_run_says_each_of_them(backend, tmp_path):
    path = tmp_path / "k.ph"
    path.write_text(KERNEL.format("overlap = on, roles = on"))
    command = ["run", str(path), "--dim", "N=300", "--backend", backend]
    said = CliRunner().invoke(cli, command)
    assert said.exit_code == 0 and said.stderr.count("PH0604") == 2


def test_kbench_says_it_once():
    command = ["kbench", "--bench", "saxpy_fp32", "--option", "matmul=wmma", "--backend", "reference"]
    said = CliRunner().invoke(cli, command)
    assert said.exit_code == 0 and said.stderr.count("the option matmul = wmma has no effect") == 1
