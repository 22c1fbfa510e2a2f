"""The configurations that a search looks at: the kernel's space with what the caller pins taken out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Values = tuple[Any, ...]

# Configurations whose estimate is looked at; of larger spaces an evenly spread part.
MOST = 4096


@dataclass(frozen=True, kw_only=True)
class Space:
    """`axes`: each name with its values in the text's order, those of one value included; `pins`: what is fixed."""

    axes: tuple[tuple[str, Values], ...]
    pins: Mapping[str, Any]

    @staticmethod
    def of(space: Sequence[tuple[str, Sequence[Any]]], pins: Mapping[str, Any]) -> "Space":
        """`space` as `KernelInfo.space` has it. A pin that is no name of the space (a dim) is part of every
        configuration. Whether a pinned value is allowed is for the checker to say."""
        axes = [(name, (pins[name],) if name in pins else tuple(values)) for name, values in space]
        known = {name for name, _ in axes}
        axes += [(name, (value,)) for name, value in pins.items() if name not in known]
        return Space(axes=tuple(axes), pins=dict(pins))

    @property
    def size(self) -> int:
        return math.prod(len(values) for _, values in self.axes)

    def configurations(self, most: int = MOST) -> Iterator[dict[str, Any]]:
        """At most about `most` configurations, the last name varying fastest; all of them where they are no more."""
        step = max(1, -(-self.size // most))
        # A step with a factor in common with the extents would see only some of their values.
        while step > 1 and any(math.gcd(step, len(values)) > 1 for _, values in self.axes):
            step += 1
        for number in range(0, self.size, step):
            config: dict[str, Any] = {}
            for name, values in reversed(self.axes):
                number, digit = divmod(number, len(values))
                config[name] = values[digit]
            yield dict(reversed(config.items()))


def config_text(config: Mapping[str, Any]) -> str:
    """`BR=64 BC=32`, as `phobos kbench --autotune` takes it."""
    words = {name: str(value).lower() if isinstance(value, bool) else value for name, value in config.items()}
    return " ".join(f"{name}={value}" for name, value in words.items()) or "nothing to choose"
