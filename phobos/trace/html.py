"""The viewer: one self-contained page with the traces in it."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_STATIC = Path(__file__).resolve().parent / "static"
_SCRIPTS = ("model.js", "draw.js", "tiles.js", "lanes.js", "viewer.js")


@cache
def _parts() -> tuple[str, str, str]:
    read = {n: (_STATIC / n).read_text(encoding="utf-8") for n in ("page.html", "viewer.css", *_SCRIPTS)}
    return read["page.html"], read["viewer.css"], "\n".join(read[n] for n in _SCRIPTS)


def page(traces: Sequence[Mapping[str, Any]]) -> str:
    """The whole page: one trace, or two side by side."""
    skeleton, css, script = _parts()
    # Inside a script element the text may not hold the end of one, nor the start of a comment.
    data = json.dumps(list(traces), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    title = html.escape(f"{traces[0]['kernel']['name']}: Phobos trace")
    out = skeleton
    for name, text in (("TITLE", title), ("CSS", css), ("DATA", data), ("JS", script)):
        before, mark, after = out.partition("{{" + name + "}}")
        assert mark, name
        out = before + text + after
    return out


def frame(traces: Sequence[Mapping[str, Any]]) -> str:
    """The page inside a frame, for a notebook."""
    source = html.escape(page(traces), quote=True)
    return (
        f'<iframe srcdoc="{source}" title="Phobos trace" width="100%" height="760" '
        'style="border:1px solid #8884;border-radius:6px"></iframe>'
    )
