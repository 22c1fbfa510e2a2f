"""Reading kernel files and writing results: one diagnostic each, and nothing half written."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from phobos import files
from phobos.diagnostics import CompileError
from phobos.files import read_source, write_output


def code_of(error: pytest.ExceptionInfo[CompileError]) -> str:
    (diagnostic,) = error.value.diagnostics
    return diagnostic.code


def test_read(tmp_path: Path) -> None:
    path = tmp_path / "k.ph"
    path.write_bytes("\ufeffkernel k() {}\r\n// é\n".encode())
    source = read_source(str(path))
    assert source.name == str(path)
    assert source.text.startswith("kernel k() {}") and source.line(2) == "// é"


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "softmax.ph").write_text("")
    with pytest.raises(CompileError) as e:
        read_source(str(tmp_path / "sofmax.ph"))
    assert code_of(e) == "PH1001"
    assert "softmax.ph" in str(e.value.diagnostics[0].help)
    with pytest.raises(CompileError) as e:
        read_source(str(tmp_path / "no" / "x.ph"))
    assert code_of(e) == "PH1001" and "there is no folder" in str(e.value.diagnostics[0].help)
    with pytest.raises(CompileError) as e:
        read_source("a\0b.ph")
    assert code_of(e) == "PH1001"


def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a.ph").write_text("")
    with pytest.raises(CompileError) as e:
        read_source(str(tmp_path))
    assert code_of(e) == "PH1002" and "a.ph" in str(e.value.diagnostics[0].help)


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "k.ph"
    path.write_bytes(b"kernel k() {\n  // \xff\n}")
    with pytest.raises(CompileError) as e:
        read_source(str(path))
    assert code_of(e) == "PH1003" and "0xff at offset 18, line 2" in e.value.diagnostics[0].message


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_SOURCE_BYTES", 10)
    path = tmp_path / "k.ph"
    path.write_text("// " + "x" * 20)
    with pytest.raises(CompileError) as e:
        read_source(str(path))
    assert code_of(e) == "PH1003"


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no such device")
def test_an_endless_device_is_refused() -> None:
    with pytest.raises(CompileError):
        read_source("/dev/zero")


def test_write_new_and_replace(tmp_path: Path) -> None:
    path = tmp_path / "out.cu"
    write_output(str(path), b"one")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o640)
    write_output(str(path), b"two")
    assert path.read_bytes() == b"two" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["out.cu"]


def test_write_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_output(str(tmp_path / "link"), b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    write_output(str(path), b"through")
    reader.join(10)
    assert got == [b"through"] and stat.S_ISFIFO(path.stat().st_mode)


def test_failures_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in (tmp_path, tmp_path / "no" / "x", "a\0b"):
        with pytest.raises(CompileError) as e:
            write_output(str(bad), b"x")
        assert code_of(e) == "PH1005"
    path = tmp_path / "kept"
    path.write_text("old")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CompileError, match="No space left"):
        write_output(str(path), b"new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["kept"]


def test_a_read_only_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept"
    path.write_text("old")
    monkeypatch.setattr(os, "access", lambda *args: False)  # as for a user who is not root
    with pytest.raises(CompileError, match="Permission denied"):
        write_output(str(path), b"new")
    assert path.read_text() == "old"
