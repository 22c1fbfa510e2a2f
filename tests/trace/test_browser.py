"""The page in headless Chromium: every control, both views, all CTAs, keyboard, no error in the console, no request.

Screenshots at three sizes go to build/screenshots/. Needs `chromium` and `chromedriver` on the path and fails without
them; PHOBOS_NO_BROWSER=1 leaves these tests out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from viewer_page import Page

from phobos.kernel import jit, load

pytestmark = pytest.mark.skipif(os.environ.get("PHOBOS_NO_BROWSER") == "1", reason="PHOBOS_NO_BROWSER=1")

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "build" / "screenshots"
SIZES = [(360, 740), (1024, 768), (1920, 1080)]
RAGGED = """
@autotune(BR in {4}, BC in {24})
kernel ragged(X: tensor<f32>[M, N], Y: tensor<f32>[M, N]) {
  let row = ctx.block.x * BR
  for c in range(0, N, BC) {
    let x = X[row :+ BR, c :+ BC]
    let s = x - rowmax(x)
    Y[row :+ BR, c :+ BC] = exp(s)
  }
}
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    flash = load(ROOT / "examples" / "flash_attention_fp32.ph")
    traces = {
        "flash": flash.trace(emulator=True),
        "compare": flash.trace(config={"BR": 4, "BC": 4}, compare={"BR": 8, "BC": 8}, dims={"Nq": 8, "Nk": 16}),
        "ragged": jit(RAGGED, name="ragged.ph").trace(dims={"M": 6, "N": 40}),
        "columns": load(ROOT / "examples" / "transpose.ph").trace(),
        "gemm": load(ROOT / "examples" / "gemm_fp16.ph").trace(),
        "empty": load(ROOT / "examples" / "saxpy_fp32.ph").trace(dims={"N": 0}),
    }
    for name, trace in traces.items():
        trace.save(folder / f"{name}.html")
    return {name: (folder / f"{name}.html").as_uri() for name in traces}


def test_step_controls(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash"])
    assert page.step() == "step 1 of 45"
    assert not page.find("[aria-label='Step back']").is_enabled()
    page.click("[aria-label='Step forward']")
    page.click("[aria-label='Step forward']")
    assert page.step() == "step 3 of 45"
    page.click("[aria-label='Step back']")
    assert page.step() == "step 2 of 45"
    assert "var acc" in page.find("[aria-current='step']").text and "makes acc" in page.find(".now").text
    page.click("[aria-label='Last step']")
    assert page.step() == "step 45 of 45" and not page.find("[aria-label='Step forward']").is_enabled()
    assert "stores to O" in page.find(".now").text
    page.click("[aria-label='First step']")
    page.js("const s = document.querySelector('.scrub'); s.value = 22; s.dispatchEvent(new Event('input'))")
    assert page.step() == "step 23 of 45"
    page.done()


def test_play_runs_and_pauses(browser: Any, pages: dict[str, str]) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    page = Page(browser, pages["flash"])
    page.click("[aria-label='Play']")
    WebDriverWait(browser, 10).until(lambda _: page.step() != "step 1 of 45")
    page.click("[aria-label='Pause']")
    assert page.find("[aria-label='Play']").is_displayed()
    page.click("[aria-label='Last step']")
    page.press(" ")  # plays again from the start, once the button has lost the focus to nothing
    page.js("document.activeElement.blur()")
    page.press(" ")
    page.press(" ")
    page.done()


def test_lines_jump_to_their_steps(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash"])
    line = "[aria-label^='Line 23:']"
    page.click(line)
    assert page.step() == "step 7 of 45"
    page.click(line)  # the next time that the line is done
    assert page.step() == "step 20 of 45"
    page.click(line)
    page.click(line)
    assert page.step() == "step 7 of 45"
    assert page.all("[aria-label^='Line 19:']") == []  # a loop head makes no step
    page.done()


def test_keyboard(browser: Any, pages: dict[str, str]) -> None:
    from selenium.webdriver.common.keys import Keys

    page = Page(browser, pages["flash"])
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.ARROW_RIGHT)
    assert page.step() == "step 3 of 45"
    page.press(Keys.END)
    assert page.step() == "step 45 of 45"
    page.press(Keys.HOME)
    assert page.step() == "step 1 of 45"
    page.press(" ")
    assert page.find("[aria-label='Pause']").is_displayed()
    page.press(" ")
    assert page.find("[aria-label='Play']").is_displayed()
    page.press(Keys.HOME)
    # Tab reaches every control in order, each with a visible focus ring.
    seen = []
    for _ in range(16):
        page.press(Keys.TAB)
        label = "return document.activeElement.getAttribute('aria-label') || document.activeElement.textContent.trim()"
        seen.append(page.js(label))
        assert page.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid", seen[-1]
    assert seen[0] == "Skip to the trace" and "Open full view" in seen
    # A tab of the views is left by arrow keys, without a change of step.
    page.js("document.querySelector('[role=tab]').focus()")
    page.press(Keys.ARROW_RIGHT)
    assert page.find("[role=tab][aria-selected=true]").text == "Lanes" and page.step() == "step 1 of 45"
    # The cells of a heat map are read by arrow keys.
    page.press(Keys.ARROW_LEFT)
    page.js("document.querySelector('.output canvas').focus()")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert page.find("#tip").text.startswith("Q[1, 1] = ") and page.step() == "step 1 of 45"
    page.done()


def test_tiles_view(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash"])
    page.click("[aria-label^='Line 36:']")
    text = page.panel()
    for expected in ("Global memory", "V", "read here", "acc", "registers acc", "Shared memory", "Lifetimes", "FLOPs"):
        assert expected in text
    labels = [s.get_attribute("aria-label") or "" for s in page.all(".output svg[role=img]")]
    assert any("k_s: bytes 0 to" in label for label in labels) and any("steps" in label for label in labels)
    decisions = page.find(".text-side .card").text
    assert "contraction" in decisions and "not mma" in decisions and "ph_syncthreads" in decisions
    assert "the same addresses, thread by thread" in decisions
    # Values under the pointer.
    from selenium.webdriver.common.action_chains import ActionChains

    canvas = next(c for c in page.all(".output canvas") if (c.get_attribute("aria-label") or "").startswith("tile acc"))
    page.js("arguments[0].scrollIntoView({block: 'center'})", canvas)
    ActionChains(browser).move_to_element(canvas).perform()
    assert page.find("#tip").text.startswith("acc[")
    # A bar of the lifetimes is a way to its step.
    page.js("document.querySelector('[aria-label=Lifetimes] svg rect[onclick], [aria-label=Lifetimes] svg rect[style]')"
            ".dispatchEvent(new MouseEvent('click', {bubbles: true}))")  # fmt: skip
    assert page.step() == "step 1 of 45"
    page.done()


def test_lanes_view(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash"])
    page.click("[aria-label^='Line 23:']")
    page.click("[id^=tab-lanes]")
    text = page.panel()
    assert "Who holds which element" in text and "Memory accesses" in text and "Barrier of the block" in text
    assert "8 128-byte lines, no more than its bytes need" in text
    page.choose("[data-keep='access']", "4")
    assert "wavefronts" in page.panel() and "no bank conflict" in page.panel()
    page.js("const s = document.querySelector('[data-keep=request]'); s.value = 5; s.dispatchEvent(new Event('input'))")
    assert "Request 6 of 64" in page.panel()
    page.choose("[data-keep='Warp']", "1")
    page.choose("[data-keep='Warp']", "-1")
    page.click("[data-keep='lane9']")
    assert "Lane 9: show all" in page.panel()
    page.click("[data-keep='lane9']")
    page.click("[aria-label^='Line 27:']")
    assert "Butterfly shuffles for mnew: lane xor 1, then lane xor 2, then lane xor 4" in page.panel()
    page.done()


def test_extra_lines_and_conflicts_are_marked(browser: Any, pages: dict[str, str]) -> None:
    """What the page says of costs is what the trace says. Red is what costs bytes: conflicts, and sectors of 32 bytes
    that are not used in full; columns of 8 floats use theirs, although they touch more lines."""
    page = Page(browser, pages["columns"])
    page.click("[id^=tab-lanes]")
    found = page.js(
        "const t = phobosTrace.panes[0].model.trace; return phobosTrace.panes[0].model.accesses(0, 0)"
        ".map(({access: a}) => [a.memory, a.requests.reduce((n, r) => n + r[3] - r[4], 0)])"
    )
    assert {memory for memory, extra in found if extra} == {"global", "shared"}
    for index, (memory, extra) in enumerate(found):
        page.choose("[data-keep='access']", str(index))
        unit = "wavefront" if memory == "shared" else "128-byte line"
        text = page.panel()
        assert unit in text and (f"{extra} more than its bytes need" in text) == (extra > 0)
        marked = page.all(".output .bad")
        if extra and memory == "shared":
            assert any("conflict" in m.text for m in marked) and any("more" in m.text for m in marked)
        elif extra:
            assert marked == [] and "all of them used in full" in text
    page.done()


def test_masked_elements(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["ragged"])
    page.choose(".cta", "1")
    page.click("[aria-label='Last step']")
    assert "64 masked" in page.panel()  # of 4 x 24 elements 2 x 16 exist
    page.click("[id^=tab-lanes]")
    assert "Masked or idle lanes" in page.panel()
    page.done()


def test_all_ctas(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash"])
    options = [o.text for o in page.all(".cta option")]
    assert options == ["CTA 0", "CTA 1", "All CTAs"]
    page.choose(".cta", "1")
    page.click("[aria-label='Last step']")
    assert page.step() == "step 45 of 45"
    page.choose(".cta", "-1")
    assert "CTA (0, 0, 0)" in page.panel() and "CTA (1, 0, 0)" in page.panel() and "Work of all CTAs" in page.panel()
    page.click("[id^=tab-lanes]")
    assert "Accesses of all CTAs" in page.panel() and page.panel().count("global write to O") == 2
    page.click("[aria-label='Step back']")
    page.choose(".cta", "0")
    assert page.step() == "step 44 of 45"
    page.done()


def test_two_configurations_step_together(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["compare"], (1600, 900))
    numbers = [e.text for e in page.all(".stepno")]
    assert numbers == ["step 1 of 58", "step 1 of 32"]
    assert [h.text for h in page.all("h2.pane-title")] == ["D = 64, BR = 4, BC = 4", "D = 64, BR = 8, BC = 8"]
    page.js("phobosTrace.panes[0].toLine(41)")
    assert [e.text for e in page.all(".stepno")] == ["step 57 of 58", "step 31 of 32"]
    assert len({e.text for e in page.all("[aria-current='step']")}) == 1
    page.click("#link")
    page.js("phobosTrace.panes[1].go(0)")
    assert [e.text for e in page.all(".stepno")] == ["step 57 of 58", "step 1 of 32"]
    page.done()


def test_theme_and_full_view(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash"])
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.js(ground)
    page.click("#theme")
    assert page.js(ground) != light and page.find("#theme").text == "Light"
    page.click("#theme")
    assert page.js(ground) == light
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    fresh = Page(browser, pages["flash"])
    assert fresh.js(ground) != light
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    page = Page(browser, pages["flash"])
    beside = page.find(".listing").rect
    page.click("#full")
    assert page.find("#full").text == "Close full view" and "follow below" not in page.find("#full").get_attribute(
        "title"
    )
    # The text stays, below the view.
    below, view = page.find(".listing").rect, page.find(".view-side").rect
    assert below["y"] > view["y"] + view["height"] - 1 and view["width"] > 1100 and beside["y"] < 200
    page.click("#full")
    assert page.find(".listing").rect == beside and "follow below" in page.find("#full").get_attribute("title")
    page.done()
    for name, size in (("flash", (360, 740)), ("compare", (1600, 900))):
        page = Page(browser, pages[name], size)
        above = page.find(".listing").rect["y"]
        assert above < page.find(".output").rect["y"]
        page.click("#full")
        listing, view = page.find(".listing"), page.find(".output").rect
        assert listing.is_displayed() and listing.rect["y"] >= view["y"] + view["height"] - 1
        page.done()


def test_every_step_of_every_cta_draws(browser: Any, pages: dict[str, str]) -> None:
    for name in ("flash", "ragged", "gemm", "columns"):
        page = Page(browser, pages[name])
        page.js(
            "const p = phobosTrace.panes[0];"
            "for (const c of [...p.model.trace.ctas.keys(), -1]) for (const v of ['tiles', 'lanes']) {"
            "  p.cta = c; p.view = v; for (let n = 0; n < p.count; n++) p.go(n); }"
        )
        page.done()
    page = Page(browser, pages["empty"])
    assert "the grid has no block" in page.find(".now").text
    page.done()


def test_screen_reader_names(browser: Any, pages: dict[str, str]) -> None:
    """Every control has a name, pictures have descriptions, the step is announced."""
    page = Page(browser, pages["flash"])
    page.click("[aria-label^='Line 36:']")
    for view in ("tiles", "lanes"):
        page.click(f"[id^=tab-{view}]")
        nameless = page.js(
            "return [...document.querySelectorAll('button, select, input, canvas, svg[role=img]')].filter(e =>"
            " !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length)))"
            ".map(e => e.outerHTML.slice(0, 80))"
        )
        assert nameless == []
    assert page.find(".now").get_attribute("aria-live") == "polite"
    assert page.find(".scrub").get_attribute("aria-valuetext") == "step 16 of 45"
    assert page.js("return document.documentElement.lang") == "en"
    page.done()


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_sizes(browser: Any, pages: dict[str, str], size: tuple[int, int]) -> None:
    """Nothing is wider than the window; screenshots of each view for a person to look at."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    for name, go in (("flash", 35), ("gemm", 3), ("ragged", 4), ("compare", 6)):
        for view in ("tiles", "lanes"):
            page = Page(browser, pages[name], size)
            page.js(f"for (const p of phobosTrace.panes) {{ p.go({go}, true); p.show('{view}'); }}")
            wide = page.js("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            assert wide[0] <= wide[1], (name, view)
            assert page.find(".scrub").is_displayed() and page.find("[aria-label='Play']").is_displayed()
            assert page.find("[aria-current='step']").is_displayed()
            shot = SHOTS / f"{name}-{view}-{size[0]}x{size[1]}.png"
            assert browser.save_screenshot(str(shot)) and shot.stat().st_size > 5000
            page.done()
