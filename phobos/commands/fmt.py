"""`phobos fmt`: the canonical layout of kernel files."""

from __future__ import annotations

import sys

from phobos.files import read_source, write_output
from phobos.syntax.formatter import format_source


def format_file(path: str, *, write: bool) -> bool:
    """Whether the file's layout differs from the canonical one; with `write` it then gets that ("-" is printed).

    Raises CompileError for a text that does not parse, which is left alone, and for a file that cannot be read or
    written.
    """
    source = read_source(path)
    text = format_source(source)
    # The text was decoded from UTF-8 without its byte order mark, which counts as no difference.
    changed = text != source.text
    if not write:
        return changed
    if path == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())  # kernel files are UTF-8, whatever the locale says
    elif changed:
        write_output(path, text.encode())
    return changed
