"""Results on disk: found again, replaced whole, shared by processes, and no trouble where there is any."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from phobos.runtime import cache
from phobos.tuning import store
from phobos.tuning.result import SKIPPED, TIMED, Outcome, SearchResult
from phobos.tuning.store import Key

ROOT = Path(__file__).resolve().parent.parent.parent


def key(**changes: Any) -> Key:
    base = Key(
        text="kernel k(X: tensor<f32>[N]) {\n  // a remark\n  X[0 :+ 4] = 1.0\n}\n",
        kernel="k",
        device="NVIDIA H200",
        capability=(9, 0),
        dims=(("N", 4096),),
        dtypes=(("T", "f16"),),
        consts=(("causal", True),),
        pins=(),
    )
    return dataclasses.replace(base, **changes)


def result(**changes: Any) -> SearchResult:
    base = SearchResult(
        kernel="k",
        device="NVIDIA H200",
        capability=(9, 0),
        dims={"N": 4096},
        dtypes={"T": "f16"},
        consts={"causal": True},
        pins={},
        best={"BR": 64, "S": "on"},
        microseconds=12.5,
        complete=True,
        interrupted=False,
        limit=None,
        space_size=3,
        reference="the float64 reference",
        seconds=3.25,
        date="2026-01-01T00:00:00+00:00",
        compiler="abc",
        outcomes=(
            Outcome(config={"BR": 64, "S": "on"}, status=TIMED, microseconds=12.5, launches=100, registers=64),
            Outcome(config={"BR": 32, "S": "on"}, status=TIMED, microseconds=14.0, launches=100, error=1e-7),
            Outcome(config={"BR": 128, "S": "on"}, status=SKIPPED, stage="fit", reason="70000 bytes"),
        ),
    )
    return dataclasses.replace(base, **changes)


def forget() -> None:
    """What a new process does not have."""
    store._kept.clear()


def test_a_result_is_found_again() -> None:
    assert store.load(key()) is None
    store.save(key(), result())
    forget()
    found = store.load(key())
    assert found == dataclasses.replace(result(), from_store=True)
    assert "70000 bytes" in found.text() and "from the store" in found.summary()
    assert [p.name.split("-")[0] for p in store.folder().iterdir()] == ["k"]


def test_each_part_of_the_key_counts() -> None:
    store.save(key(), result())
    forget()
    for change in (
        {"text": key().text.replace("1.0", "2.0")},
        {"kernel": "other"},
        {"device": "NVIDIA A100"},
        {"capability": (9, 1)},
        {"dims": (("N", 4097),)},
        {"dtypes": (("T", "f32"),)},
        {"consts": (("causal", False),)},
        {"pins": (("BR", 64),)},
        {"grid": (1, 1, 1)},
        {"consts": (("causal", 1),)},
    ):
        assert store.load(key(**change)) is None, change


def test_comments_and_blanks_do_not_count() -> None:
    store.save(key(), result())
    text = "// new\n\nkernel k(X: tensor<f32>[N]) {   // why\n  X[0 :+ 4] = 1.0\n\n}"
    assert store.load(key(text=text)) is not None


def test_what_looks_like_a_comment_in_a_string_counts() -> None:
    text = 'kernel k(X: tensor<f32>[N]) {\n  assert(N > 0, "\\"see http://x"); X[0 :+ 4] = 1.0 // why "not\n}'
    store.save(key(text=text), result())
    for old, new in (("http://x", "http://y"), ("1.0", "2.0"), ("see http", "see \u2028http")):
        assert store.load(key(text=text.replace(old, new))) is None, new
    assert store.load(key(text=text.replace('// why "not', '//').replace("\n", "\r\n"))) is not None


def test_a_search_that_looked_at_less_replaces_none_that_looked_at_more() -> None:
    store.save(key(), result(limit=2, microseconds=14.0))
    store.save(key(), result(limit=1, microseconds=1.0))
    assert store.load(key()).microseconds == 14.0
    store.save(key(), result())
    store.save(key(), result(limit=2, microseconds=1.0))
    assert store.load(key()).microseconds == 12.5
    store.save(key(), result(limit=2, microseconds=13.0, compiler="newer"))
    assert store.load(key()).microseconds == 13.0


FOREIGN: list[dict[str, Any]] = [
    {"best": {"BR": [2]}},
    {"best": {"BR": {}}},
    {"best": {"BR": None}},
    {"best": []},
    {"kernel": "other"},
    {"device": "NVIDIA A100"},
    {"capability": [8, 0]},
    {"dims": {"N": 4097}},
    {"dims": {"N": True}},
    {"dims": {}},
    {"dtypes": {"T": "f32"}},
    {"consts": {"causal": 1}},
    {"pins": {"BR": 64}},
    {"microseconds": float("nan")},
    {"microseconds": True},
    {"date": None},
    {"compiler": 3},
    {"limit": "x"},
    {"complete": 1},
    {"outcomes": {}},
    {"outcomes": [{"config": {"BR": []}, "status": "timed", "microseconds": 1.0}]},
    {"outcomes": [{"config": {"BR": 1}, "status": "timed", "microseconds": "1"}]},
    {"extra": 1},
]


@pytest.mark.parametrize("change", FOREIGN)
def test_a_file_with_a_right_checksum_may_still_be_wrong(change: dict[str, Any]) -> None:
    store.save(key(), result())
    path = store.path_of(key())
    content = json.loads(path.read_text())
    content["result"].update(change)
    content["sha256"] = store._checksum(content)
    path.write_text(json.dumps(content))
    forget()
    with pytest.warns(store.TuningWarning, match="PH0931.*the next search of kernel 'k' replaces it"):
        assert store.load(key()) is None


@pytest.mark.parametrize("text", ["[" * 100000, '{"a":' * 100000, "9" * 5000, "NaN"])
def test_a_file_that_json_cannot_read(text: str) -> None:
    store.save(key(), result())
    store.path_of(key()).write_text(text)
    forget()
    with pytest.warns(store.TuningWarning, match="PH0931"):
        assert store.load(key()) is None


def test_what_is_no_file_is_not_read() -> None:
    path = store.path_of(key())
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.warns(cache.CacheWarning, match="PH0930"):
        assert store.load(key()) is None
    store.save(key(), result())
    forget()
    assert store.load(key()) is not None


def test_an_interrupted_search_replaces_no_whole_one() -> None:
    store.save(key(), result())
    store.save(key(), result(interrupted=True, microseconds=99.0))
    assert store.load(key()).microseconds == 12.5  # type: ignore[union-attr]
    store.save(key(), result(interrupted=True, microseconds=99.0, compiler="newer"))
    assert store.load(key()).microseconds == 99.0  # type: ignore[union-attr]
    store.save(key(), result(microseconds=11.0))
    assert store.load(key()).microseconds == 11.0  # type: ignore[union-attr]


def damages(text: str) -> list[str]:
    data = json.loads(text)
    data["result"]["microseconds"] = 1.0
    wrong_number = json.dumps(data)
    old = json.loads(text)
    old["format"] = 0
    old["sha256"] = store._checksum(old)
    return ["", "{", text[: len(text) // 2], "[]", "null", '{"format": 1}', wrong_number, json.dumps(old), "\0" * 100]


@pytest.mark.parametrize("number", range(9))
def test_a_damaged_file_is_ignored_with_a_warning_and_replaced(number: int) -> None:
    store.save(key(), result())
    path = store.path_of(key())
    path.write_text(damages(path.read_text())[number])
    forget()
    with pytest.warns(store.TuningWarning, match="PH0931") as caught:
        assert store.load(key()) is None
        assert store.load(key()) is None
    assert len(caught) == 1
    store.save(key(), result(microseconds=8.0))
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.load(key()).microseconds == 8.0  # type: ignore[union-attr]


def test_a_folder_that_cannot_be_written_gives_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(blocked))
    with pytest.warns(cache.CacheWarning, match="PH0930") as caught:
        store.save(key(), result())
        store.save(key(kernel="other"), result())
        found = store.load(key())
    assert len(caught) == 1
    assert found is not None and found.microseconds == 12.5  # kept for this process


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_still_serves() -> None:
    store.save(key(), result())
    forget()
    store.folder().chmod(0o555)
    try:
        with pytest.warns(cache.CacheWarning):
            store.save(key(kernel="other"), result())
        assert store.load(key()) is not None
    finally:
        store.folder().chmod(0o755)


def test_without_a_cache_nothing_is_written(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_NO_CACHE", "1")
    store.save(key(), result())
    assert store.load(key()) is not None and not own_cache.exists()


_WRITER = """
import sys
from tests.tuning.test_store import key, result
from phobos.tuning import store
from phobos.tuning.result import TIMED, Outcome

me = int(sys.argv[1])
outcomes = tuple(
    Outcome(config={"BR": i}, status=TIMED, microseconds=float(me), launches=me) for i in range(40 + 10 * me)
)
sys.stdin.readline()  # until all processes are here
for round in range(15):
    for name in ("k", "other"):
        found = result(kernel=name, microseconds=float(me), seconds=float(round), outcomes=outcomes)
        store.save(key(kernel=name), found)
        store._kept.clear()
        found = store.load(key(kernel=name))
        assert found is not None, "an entry vanished or was damaged"
        them = int(found.microseconds)
        assert len(found.outcomes) == 40 + 10 * them, "a mixture of two results"
        assert {o.launches for o in found.outcomes} == {them}
print("good")
"""


def test_eight_processes_write_and_read_the_same_results() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error::UserWarning"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(number)],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(1, 9)
    ]  # fmt: skip
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in running:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out.strip()) == (0, "good"), err
    assert len(list(store.folder().iterdir())) == 2  # nothing half written is left
    assert store.load(key()) is not None and store.load(key(kernel="other")) is not None
