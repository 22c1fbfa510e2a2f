"""The disk cache: damage, several processes, no permission, eviction."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from phobos.runtime import cache


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*.bin")
    return path


def test_round_trip(own_cache: Path) -> None:
    store = cache.store("cubin")
    assert store.get("k") is None
    store.put("k", b"content")
    assert cache.store("cubin").get("k") == b"content"
    assert cache.store("front").get("k") is None
    assert only_file(own_cache / "cubin").name == "k.bin"


def test_pack_round_trip() -> None:
    meta = {"a": 1, "b": ["x", None, 1.5], "ü": "é"}
    blobs = {"cubin": bytes(range(256)), "empty": b""}
    assert cache.unpack(cache.pack(meta, blobs)) == (meta, blobs)


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "header", "foreign"])
def test_damaged_entry_is_missing_and_rebuilt(own_cache: Path, damage: str) -> None:
    store = cache.store("cubin")
    store.put("k", b"content" * 100)
    path = only_file(own_cache / "cubin")
    data = path.read_bytes()
    path.write_bytes(
        {
            "truncate": data[:-1],
            "flip": data[:60] + bytes([data[60] ^ 1]) + data[61:],
            "empty": b"",
            "header": b"X" + data[1:],
            "foreign": b"something else",
        }[damage]
    )
    assert store.get("k") is None
    assert not path.exists()
    store.put("k", b"again")
    assert store.get("k") == b"again"


def test_digest_separates_parts() -> None:
    keys = {
        cache.digest("ab", "c"), cache.digest("a", "bc"), cache.digest(("ab",), "c"), cache.digest("ab", ("c",)),
        cache.digest(b"ab", "c"), cache.digest(1), cache.digest("1"), cache.digest(True), cache.digest(None),
        cache.digest(1.0), cache.digest(), cache.digest(()),
    }  # fmt: skip
    assert len(keys) == 12
    with pytest.raises(TypeError):
        cache.digest(object())


_PROCESS = """
import sys
from phobos.runtime import cache
store = cache.Store(__import__("pathlib").Path(sys.argv[1]), 40_000, evict_every=1)
seed = int(sys.argv[2])
for i in range(150):
    key = f"k{(i * 7 + seed) % 20}"
    want = (key * 1000).encode()
    found = store.get(key)
    assert found is None or found == want, key
    store.put(key, want)
print("done")
"""


def test_two_processes(own_cache: Path) -> None:
    """Reading, writing and evicting in one folder at once: never a wrong content, never an error or a warning."""
    command = [sys.executable, "-W", "error", "-c", _PROCESS, str(own_cache)]
    running = [
        subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=_root())
        for n in (0, 11)
    ]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "done\n", "")
    assert not list(own_cache.glob(".new-*"))


def _root() -> Path:
    return Path(__file__).resolve().parents[2]


def test_unwritable_folder_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("a file where a folder should be")
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(blocker))
    with pytest.warns(cache.CacheWarning, match=r"PH0930.*PHOBOS_CACHE_DIR") as caught:
        cache.store("cubin").put("a", b"1")
        cache.store("cubin").put("b", b"2")
        cache.store("front").put("b", b"2")
        assert cache.store("cubin").get("a") is None
    assert len(caught) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root passes permission bits")
def test_read_only_folder_still_serves(own_cache: Path) -> None:
    store = cache.store("cubin")
    store.put("a", b"1")
    store.folder.chmod(0o555)
    try:
        assert store.get("a") == b"1"
        with pytest.warns(cache.CacheWarning):
            store.put("b", b"2")
    finally:
        store.folder.chmod(0o755)


def test_write_failure_leaves_no_partial_file(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = cache.store("cubin")
    store.put("a", b"1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(cache.CacheWarning, match="No space left"):
        store.put("b", b"2")
    assert [p.name for p in store.folder.iterdir()] == ["a.bin"]


def test_eviction_takes_the_least_recently_used(tmp_path: Path) -> None:
    store = cache.Store(tmp_path, 10_000, evict_every=1)
    for n in range(9):
        store.put(f"k{n}", bytes(1000))
        os.utime(store.path(f"k{n}"), (n, n))
    assert store.get("k0") is not None  # a use: now the newest
    store.put("new", bytes(1000))
    left = {p.stem for p in tmp_path.glob("*.bin")}
    assert "k0" in left and "new" in left
    assert "k1" not in left and "k8" in left
    assert sum(p.stat().st_size for p in tmp_path.glob("*.bin")) <= 8_000


def test_eviction_spares_what_another_process_is_writing(tmp_path: Path) -> None:
    writing, abandoned = tmp_path / ".new-abc", tmp_path / ".new-old"
    for path in (writing, abandoned):
        path.write_bytes(bytes(5000))
    os.utime(abandoned, (1, 1))
    store = cache.Store(tmp_path, 1000, evict_every=1)
    store.put("k", bytes(100))
    assert writing.exists() and not abandoned.exists() and store.get("k") is not None


def test_limit_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_MB", "2.5")
    assert cache.store("cubin").limit == 2_621_440


def test_turned_off(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_NO_CACHE", "1")
    cache.store("cubin").put("a", b"1")
    assert cache.store("cubin").get("a") is None
    assert not own_cache.exists()


def test_compiler_version_follows_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.j2"
    one.write_text("1")
    two.write_text("2")
    monkeypatch.setattr(cache, "_compiler_files", lambda: [one, two])

    def version() -> str:
        cache.compiler_version.cache_clear()
        return cache.compiler_version()

    try:
        first = version()
        assert version() == first
        os.utime(one, ns=(1, 1))  # touched, not changed
        assert version() == first
        two.write_text("3")
        assert version() != first
    finally:
        cache.compiler_version.cache_clear()


def test_compiler_version_covers_sources_grammar_and_templates() -> None:
    names = {p.name for p in cache._compiler_files()}
    assert {"cache.py", "ast.py", "phobos.lark", "tile.py"} <= names


def test_no_warning_in_ordinary_use(own_cache: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.store("cubin").put("a", hashlib.sha256(b"").digest())
        assert cache.store("cubin").get("a") == hashlib.sha256(b"").digest()
