"""Every example on the NumPy reference, in its own dtypes and in float64, against the oracles."""

from __future__ import annotations

import hashlib

import harness
import pytest
from cases import CASES, Case

from phobos import reference
from phobos.diagnostics import LaunchError
from phobos.ir.types import DType
from phobos.semantic.check import check_kernel_with_warnings
from phobos.semantic.signature import signatures


@pytest.mark.parametrize("float64", [False, True], ids=["own", "float64"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_reference(case: Case, float64: bool) -> None:
    kernel = harness.case_ir(case)
    before = harness.case_arguments(case)
    after = harness.copy_arguments(before, float64)
    reference.run(kernel, after, float64=float64)
    rounding = harness.rounding_of(kernel, case.dtype, float64=float64)
    assert harness.failures(case.kernel, before, after, dict(case.consts), rounding) == []


def test_a_broken_promise_of_whole_tiles_is_named() -> None:
    kernel = harness.kernel_ir("flash_attention_fp32", "flash_attention", (("D", 64), ("BR", 16), ("BC", 32)))
    arguments = harness.make_arguments("flash_attention", {"Nq": 32, "Nk": 80, "D": 64})
    with pytest.raises(LaunchError, match=r"Nk is 80.*multiple of 32"):
        reference.run(kernel, arguments)


def test_the_flash_attention_text_is_unchanged() -> None:
    """It is a published text that has to compile as it stands, comments and spaces included."""
    text = (harness.EXAMPLES / "flash_attention_fp32.ph").read_bytes()
    assert hashlib.sha256(text).hexdigest() == "38682cd2ddab09ccdf775bf9b9458266ae515a3995c5724c6a837d0268862b9c"


@pytest.mark.parametrize("file", sorted(path.stem for path in harness.EXAMPLES.glob("*.ph")))
def test_no_example_warns(file: str) -> None:
    source, module = harness.load_example(file)
    for signature in signatures(module):
        config = {name: values[0] for name, values in signature.space.items()}
        consts = {p.name: True if p.dtype is DType.BOOL else 8 for p in signature.consts}
        dtypes = dict.fromkeys(signature.dtype_params, "f32")
        _, warnings = check_kernel_with_warnings(module, signature.name, config, dtypes, consts)
        assert [w.render(source) for w in warnings] == []
