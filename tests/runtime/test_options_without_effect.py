"""What an option asks for and no pass does is said, once, and is no error."""

import pytest

import phobos
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
