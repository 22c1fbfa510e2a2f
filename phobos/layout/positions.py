"""Positions of threads: the part of an element's position that lane and warp contribute, declared once per kernel."""

from __future__ import annotations

from phobos.layout.register import Digit, RegisterLayout


def _digit(source: str, divisor: int, extent: int, last: bool) -> str:
    """The value of a digit of `lane` or `warp`; the most significant digit needs no remainder."""
    text = source
    if divisor > 1:
        text = f"{source} / {divisor}"
    if not last:
        text = f"{text} % {extent}" if divisor == 1 else f"{text} % {extent}"
    return text


def _terms(digits: tuple[Digit, ...], source: str, axis: int) -> list[str]:
    out = []
    divisor = 1
    for n, d in enumerate(digits):
        if d.axis == axis:
            text = _digit(source, divisor, d.extent, n == len(digits) - 1)
            simple = text == source
            out.append(text if d.stride == 1 else f"{text if simple else f'({text})'} * {d.stride}")
        divisor *= d.extent
    return out


class ThreadPositions:
    """Names for lane/warp expressions, with their declarations for the top of the kernel."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self.declarations: list[str] = []

    def _named(self, prefix: str, ctype: str, text: str) -> str:
        key = f"{ctype} {text}"
        if key not in self._names:
            name = f"{prefix}_{sum(1 for k in self._names.values() if k.startswith(prefix + '_'))}"
            self._names[key] = name
            self.declarations.append(f"const {ctype} {name} = {text};")
        return self._names[key]

    def base(self, layout: RegisterLayout, axis: int) -> str:
        """Position along `axis` of this thread's register 0, "" if that is 0 for every thread."""
        terms = _terms(layout.lane, "lane", axis) + _terms(layout.warp, "warp", axis)
        if not terms:
            return ""
        text = " + ".join(terms)
        return text if text in ("lane", "warp") else self._named("pos", "int", text)

    def warp_part(self, layout: RegisterLayout, axes: tuple[int, ...]) -> str:
        """Which of the warps that share lines along `axes` this one is, from 0."""
        terms = []
        divisor = weight = 1
        for n, d in enumerate(layout.warp):
            if d.axis in axes:
                text = _digit("warp", divisor, d.extent, n == len(layout.warp) - 1)
                terms.append(text if weight == 1 else f"({text}) * {weight}")
                weight *= d.extent
            divisor *= d.extent
        text = " + ".join(terms) or "0"
        return text if text in ("warp", "0") else self._named("part", "int", text)

    def owner(self, layout: RegisterLayout, dropped: tuple[int, ...] = ()) -> str:
        """Condition that this thread's slots are not replicas, "" if none is. `dropped`: axes along which only lane
        part 0 counts (their results are the same in all of these lanes)."""
        tests = []
        for source, digits in (("lane", layout.lane), ("warp", layout.warp)):
            divisor = 1
            for n, d in enumerate(digits):
                if d.axis is None or (source == "lane" and d.axis in dropped):
                    text = _digit(source, divisor, d.extent, n == len(digits) - 1)
                    tests.append(f"{text} == 0")
                divisor *= d.extent
        return self._named("owner", "bool", " && ".join(tests)) if tests else ""
