"""The configurations that a search looks at."""

from __future__ import annotations

import phobos
from phobos.tuning.space import Space, config_text

FLASH_LIKE = (("D", (64,)), ("BR", (4, 8, 16, 32, 64, 128)), ("BC", (4, 8, 16, 32, 64, 128)))


def test_the_seeds_space() -> None:
    space = Space.of(FLASH_LIKE, {})
    configs = list(space.configurations())
    assert space.size == len(configs) == 36
    assert configs[0] == {"D": 64, "BR": 4, "BC": 4} and configs[1] == {"D": 64, "BR": 4, "BC": 8}
    assert {(c["BR"], c["BC"]) for c in configs} == {(a, b) for a in FLASH_LIKE[1][1] for b in FLASH_LIKE[2][1]}
    assert list(configs[0]) == ["D", "BR", "BC"]


def test_pins_take_names_out() -> None:
    configs = list(Space.of(FLASH_LIKE, {"BR": 32}).configurations())
    assert [c["BC"] for c in configs] == [4, 8, 16, 32, 64, 128] and {c["BR"] for c in configs} == {32}
    assert list(Space.of(FLASH_LIKE, {"Nk": 4096, "BR": 4, "BC": 4}).configurations()) == [
        {"D": 64, "BR": 4, "BC": 4, "Nk": 4096}
    ]


def test_names_may_stand_for_threads_words_and_tiles() -> None:
    text = (
        "@launch(T)\n@autotune(T in {64, 128}, B in [16, 64], S in {on, off})\n@options(swizzle = S)\n"
        "kernel k(X: tensor<f32>[N]) {\n  let i = ctx.block.x * B\n  X[i :+ B] = 2.0 * X[i :+ B]\n}\n"
    )
    space = Space.of(phobos.jit(text).info.space, {})
    configs = list(space.configurations())
    assert len(configs) == 2 * 3 * 2
    assert {c["S"] for c in configs} == {"on", "off"} and {c["T"] for c in configs} == {64, 128}


def test_without_names_there_is_one_configuration() -> None:
    assert list(Space.of((), {}).configurations()) == [{}]
    assert config_text({}) == "nothing to choose" and config_text({"BR": 4, "S": "on"}) == "BR=4 S=on"


def test_a_huge_space_is_looked_at_evenly() -> None:
    axes = tuple((f"A{i}", tuple(range(n))) for i, n in enumerate((8, 6, 10, 12, 16, 5)))
    space = Space.of(axes, {})
    configs = list(space.configurations(most=1000))
    assert space.size == 460800 and 300 <= len(configs) <= 1000
    for name, values in axes:
        assert {c[name] for c in configs} == set(values)
