"""The compiler makes the same of every paraphrase: products, rings, barriers, registers, and the same main loop.

What runs as fast must look alike, and this runs without a GPU; `python -m kbench.paraphrases` takes the times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
import sass

from kbench.bench import Bench, Case
from kbench.paraphrases import PARAPHRASES, Paraphrase, originals
from phobos.codegen.kernel import print_kernel
from phobos.compiler import default_spec
from phobos.ir.abi import Decision, Specialization, TensorFacts
from phobos.ir.scheduled import Barrier, Contract, ForStmt, Schedule, StepMultiply, walk
from phobos.ir.storage import Buffer, Fragment
from phobos.ir.tile import KernelIR
from phobos.ir.types import DType
from phobos.passes import pipeline
from phobos.runtime.nvrtc import Binary, compile_program
from phobos.semantic.check import check_kernel
from phobos.semantic.signature import signatures
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target
from phobos.tuning import default

TARGET = get_target("sm_90a")


def _case(config: Mapping[str, int], causal: bool | None = None) -> Case:
    """Only what compiling needs."""
    consts = {} if causal is None else {"causal": causal}
    label = " ".join(f"{n}{v}" for n, v in (*config.items(), *consts.items()))
    return Case(label=label, dims={}, config=config, consts=consts)


# The first of each are compiled to cubin, the others only lowered.
CASES: dict[str, tuple[Case, ...]] = {
    "gemm_fp16": (
        _case({"BM": 128, "BN": 128, "BK": 32}),
        _case({"BM": 128, "BN": 256, "BK": 64}),
        _case({"BM": 256, "BN": 128, "BK": 32}),
        _case({"BM": 64, "BN": 64, "BK": 64}),
    ),
    "attention": (
        _case({"D": 64, "BR": 128, "BC": 64}, causal=False),
        _case({"D": 64, "BR": 64, "BC": 32}, causal=True),
        _case({"D": 128, "BR": 128, "BC": 32}, causal=False),
        _case({"D": 80, "BR": 64, "BC": 64}, causal=True),
    ),
}
COMPILED = {"gemm_fp16": 1, "attention": 2}
ORIGINALS = {name: Paraphrase(original=name, name="original", file=None) for name in CASES}
each = pytest.mark.parametrize(
    "paraphrase, case",
    [
        pytest.param(p, c, id=f"{p.original}-{p.name}-{c.label}".replace(" ", "-"))
        for p in PARAPHRASES
        for c in CASES[p.original]
    ],
)
each_compiled = pytest.mark.parametrize(
    "paraphrase, case",
    [
        pytest.param(p, c, id=f"{p.original}-{p.name}-{c.label}".replace(" ", "-"))
        for p in PARAPHRASES
        for c in CASES[p.original][: COMPILED[p.original]]
    ],
)


@cache
def _text(path: Path) -> tuple[SourceFile, Any]:
    source = SourceFile(path.name, path.read_text(encoding="utf-8"))
    return source, parse(source)


def _kernel(paraphrase: Paraphrase, case: Case) -> KernelIR:
    module = _text(paraphrase.path)[1]
    bench = paraphrase.bench(originals()[paraphrase.original])
    here = paraphrase.case(case)
    dtypes = {name: DType(dtype) for name, dtype in bench.dtypes.items()}
    return check_kernel(module, signatures(module)[0].name, dict(here.config), dtypes, dict(here.consts))


def _specialization(paraphrase: Paraphrase, kernel: KernelIR) -> Specialization:
    """Large aligned tensors; views are not contiguous, and the last axis that is stored has the unit stride."""
    spec = default_spec(kernel)
    if not paraphrase.views:
        return spec
    facts = dict(spec.tensors)
    for name, order in paraphrase.order.items():
        last = order[-1] == len(order) - 1
        facts[name] = TensorFacts(align16=last, contiguous=False, inner=None if last else order[-1])
    return Specialization(tensors=tuple(facts.items()), dim_multiple=spec.dim_multiple, sign=spec.sign)


@cache
def _schedule(name: str, original: str, label: str) -> Schedule:
    paraphrase = next(p for p in (*ORIGINALS.values(), *PARAPHRASES) if (p.name, p.original) == (name, original))
    case = next(c for c in CASES[original] if c.label == label)
    kernel = _kernel(paraphrase, case)
    return pipeline.run(kernel, TARGET, _specialization(paraphrase, kernel)).schedule


def schedule_of(paraphrase: Paraphrase, case: Case) -> Schedule:
    return _schedule(paraphrase.name, paraphrase.original, case.label)


def binary_of(paraphrase: Paraphrase, case: Case) -> Binary:
    source = _text(paraphrase.path)[0]
    return compile_program(print_kernel(schedule_of(paraphrase, case), source, ""), TARGET)


# --- what is compared ------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """`products`: how the products of the main loop are computed, and where their left operands are, in each version of
    the loop (passes/whole_tiles.py). `rings`: stages and bytes of elements of what is staged for them. `barriers` of an
    iteration, for each version. `algebra`: choices of the algebra passes."""

    threads: int
    products: tuple[tuple[tuple[str, str, str, bool, str], ...], ...]
    rings: Counter[tuple[int, int]]
    barriers: tuple[int, ...]
    algebra: Counter[str]


def _main_loops(schedule: Schedule) -> list[ForStmt]:
    return [
        s
        for s in walk(schedule.body)
        if isinstance(s, ForStmt) and any(isinstance(i, (Contract, StepMultiply)) for i in walk(s.body))
    ]


def _where(s: Contract | StepMultiply) -> str:
    if isinstance(s, StepMultiply):
        return "a step ahead"
    if s.a_name is not None:
        return "registers, read before the loop"
    return "registers" if isinstance(s.a, Fragment) else "shared"


def _shape(s: Contract | StepMultiply) -> str:
    """Fragments, warps and steps; not that a left operand that is computed could stay in registers."""
    return s.plan.description.split(", a stays")[0]


def _buffers(item: Any, seen: set[int], found: set[Buffer]) -> None:
    """Every buffer that a statement holds, whatever its fields are called."""
    if id(item) in seen or isinstance(item, (str, int, float, bool, type(None))):
        return
    seen.add(id(item))
    if isinstance(item, Buffer):
        found.add(item)
    elif isinstance(item, (tuple, list)):
        for x in item:
            _buffers(x, seen, found)
    elif hasattr(item, "__dataclass_fields__"):
        for f in item.__dataclass_fields__:
            _buffers(getattr(item, f), seen, found)


def _algebra(decisions: tuple[Decision, ...]) -> Counter[str]:
    """Choices by kind of subject: exponentials, running maxima, row sums, masks. Whether an exponential takes over a
    scale depends on where the text applies it (before the loop there is none): the instructions tell that apart."""
    found = Counter(f"{d.subject.split()[0]}: {d.choice}" for d in decisions if d.stage == "algebra")
    folded = found.pop("exp: exp2 of one multiply-add", 0) + found.pop("exp: exp2, scale not folded", 0)
    return found + Counter({"exp: exp2": folded})


def plan_of(schedule: Schedule) -> Plan:
    loops = _main_loops(schedule)
    products = [[s for s in walk(loop.body) if isinstance(s, (Contract, StepMultiply))] for loop in loops]
    buffers: set[Buffer] = set()
    for loop in loops:
        _buffers(loop.body, set(), buffers)
    rings = [b for b in buffers if b.stages > 1]
    return Plan(
        threads=schedule.threads,
        products=tuple(
            tuple((s.plan.room, s.plan.kind, _shape(s), s.plan.ahead, _where(s)) for s in one) for one in products
        ),
        rings=Counter((b.stages, prod(b.layout.shape) * b.dtype.bytes) for b in rings),
        barriers=tuple(sum(isinstance(s, Barrier) for s in walk(loop.body)) for loop in loops),
        algebra=_algebra(schedule.decisions),
    )


# --- the tests -------------------------------------------------------------------------------


@each
def test_the_plan_is_the_original_s(paraphrase: Paraphrase, case: Case) -> None:
    ours, original = (plan_of(schedule_of(p, case)) for p in (paraphrase, ORIGINALS[paraphrase.original]))
    assert (ours.threads, ours.products) == (original.threads, original.products)
    assert ours.rings == original.rings and ours.rings, "what is staged, and how far ahead"
    assert ours.barriers == original.barriers and set(ours.barriers) == {1}
    assert len(ours.products) == (2 if paraphrase.original == "gemm_fp16" else 1)
    assert ours.algebra == original.algebra


@each
def test_shared_memory(paraphrase: Paraphrase, case: Case) -> None:
    """The same bytes, a B that is stored transposed included: swizzled tiles have no padding."""
    ours, original = (schedule_of(p, case).shared_bytes for p in (paraphrase, ORIGINALS[paraphrase.original]))
    assert ours == original


@each_compiled
def test_registers(paraphrase: Paraphrase, case: Case) -> None:
    ours, original = (binary_of(p, case) for p in (paraphrase, ORIGINALS[paraphrase.original]))
    assert ours.spill_bytes == original.spill_bytes == 0
    assert ours.registers <= 1.12 * original.registers


@each_compiled
def test_instructions_of_the_main_loop(paraphrase: Paraphrase, case: Case, tmp_path: Path) -> None:
    tool = sass.disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    both = (paraphrase, ORIGINALS[paraphrase.original])
    codes = [sass.instructions(binary_of(p, case).cubin, tool, tmp_path) for p in both]
    ours, original = map(sass.main_loop, codes)
    for opcode in ("HMMA", "LDSM", "LDGSTS", "MUFU", "BAR", "SHFL", "STS", "LDL", "STL"):
        assert ours[opcode] == original[opcode], opcode
    assert ours.total() <= 1.05 * original.total()
    # What is stored to global memory goes in accesses as wide as the original's.
    narrow, wide = ({i.opcode for i in code if i.opcode.startswith("STG")} for code in codes)
    assert narrow <= wide


@pytest.mark.parametrize("paraphrase", PARAPHRASES, ids=lambda p: f"{p.original}-{p.name}".replace(" ", "-"))
def test_the_model_chooses_the_same(paraphrase: Paraphrase) -> None:
    """Without a search a paraphrase is run in the configuration in which the original is."""
    bench: Bench = originals()[paraphrase.original]
    case = bench.cases[0]
    pinned = {"BK": 64} if paraphrase.original == "gemm_fp16" else {"BC": 64}
    found = []
    for p in (ORIGINALS[paraphrase.original], paraphrase):
        module, here, own = _text(p.path)[1], p.case(case), p.bench(bench)
        dtypes = {name: DType(dtype) for name, dtype in own.dtypes.items()}
        chosen, _ = default.choose(
            signatures(module)[0], module, here.dims, dtypes, TARGET, consts=here.consts, pinned=p.renamed(pinned)
        )
        found.append({n: v for n, v in chosen.items() if n not in here.consts})
    assert found[1] == paraphrase.renamed(found[0])
