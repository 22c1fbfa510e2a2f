"""What the page says in both views: of ended CTAs, folded steps, atomics, sectors, warps, what is not written yet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from viewer_page import Page

from phobos.kernel import jit, load

pytestmark = pytest.mark.skipif(os.environ.get("PHOBOS_NO_BROWSER") == "1", reason="PHOBOS_NO_BROWSER=1")

ROOT = Path(__file__).resolve().parents[2]

COUNT = """
kernel count(X: tensor<i32>[N], H: tensor<f32>[B]) {
  let i = ctx.block.x * 32
  let bins: tile<i32>[32] = X[i :+ 32] else -1
  atomic_add(H[bins], 1.0)
  atomic_add(H[bins], 2.0)
}
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("views")
    flash = load(ROOT / "examples" / "flash_attention_fp32.ph")
    # 31 elements on 5 bins, of the last one 7 more than of each other; one is outside.
    bins = np.array([0, 1, 2, 3, 4] * 4 + [4] * 7 + [0, 1, 2, 3] + [-1] + list(range(8)) * 4, np.int32)
    traces = {
        "attention": load(ROOT / "examples" / "attention.ph").trace(),
        "flash16": flash.trace(config={"BR": 16, "BC": 16}),
        "flash64": flash.trace(config={"BR": 64, "BC": 64}),
        "windowed": load(ROOT / "examples" / "windowed_attention.ph").trace(),
        "bytes": load(ROOT / "examples" / "gemm_int8.ph").trace(),
        "count": jit(COUNT, name="count.ph").trace(bins, np.zeros(8, np.float32)),
        "compare": flash.trace(config={"BR": 4, "BC": 4}, compare={"BR": 8, "BC": 8}),
    }
    for name, trace in traces.items():
        trace.save(folder / f"{name}.html")
    return {name: (folder / f"{name}.html").as_uri() for name in traces}


def ended(page: Page) -> int:
    """A step (from 0) at which CTA 0 has ended and CTA 1 has not."""
    first, second = page.js("return phobosTrace.panes[0].model.trace.ctas.slice(0, 2).map(c => c.steps.length)")
    assert first < second
    return int(first) + 1


def test_all_ctas_when_the_first_has_ended(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["attention"])
    page.choose(".cta", "-1")
    page.js("phobosTrace.panes[0].go(arguments[0])", ended(page))
    text = page.panel()
    for expected in ("Global memory", "CTA (0, 0, 0) has ended", "CTA (1, 0, 0)", "Work of all CTAs"):
        assert expected in text
    now = page.find(".now").text
    assert "This is CTA 1; CTAs 0, 2 have ended." in now and "in all CTAs" in now
    assert page.all("[aria-current='step']") and page.all(".cuda")
    page.click("[id^=tab-lanes]")
    assert page.panel().count("has ended") == 2
    page.done()


def test_work_of_all_ctas_is_that_of_the_sentence(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash16"])
    page.js("phobosTrace.panes[0].go(6)")
    assert "32.77 kFLOP" in page.find(".now").text
    page.choose(".cta", "-1")
    assert "in all CTAs 65.54 kFLOP, 16.38 kB of views read" in page.find(".now").text
    cells = [c.text for c in page.all("[aria-label='Work so far'] tbody tr:first-child td")]
    assert cells[0] == "65,536"
    page.done()


def test_bytes_of_the_text_and_of_threads(browser: Any, pages: dict[str, str]) -> None:
    """The text reads Q in each of three iterations, threads once."""
    page = Page(browser, pages["flash16"])
    page.click("[aria-label='Last step']")
    rows = {r.find_element("css selector", "th").text: r for r in page.all("[aria-label='Work so far'] tbody tr")}
    whole = {name: r.find_elements("css selector", "td")[2].text for name, r in rows.items()}
    tile = 16 * 64 * 4
    assert whole["bytes that the text reads"] == f"{9 * tile:,}"
    assert whole["bytes that threads load"] == f"{7 * tile:,}"
    assert whole["bytes that the text writes"] == whole["bytes that threads store"] == f"{tile:,}"
    assert "wherever it stands, in every iteration" in page.panel()
    page.done()


def test_folded_steps_say_where_their_work_is_done(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash64"])
    page.click("[aria-label^='Line 35:']")
    text = page.panel()
    assert "folded into step 16" in text and "there in registers acc, 32 a thread" in text
    assert "in no memory of its own" not in text
    page.click("[id^=tab-lanes]")
    assert "its work is folded into step 16, and the tile stays in registers acc" in page.panel()
    assert page.all("[aria-label='Threads and lanes'] canvas")
    assert "No tile is in registers" not in page.panel() and "no value changes threads" not in page.panel()
    page.click("[aria-label^='Line 20:']")
    assert "A view moves nothing" in page.panel() and "None" in page.panel()
    page.done()


def test_waits_and_emitted_text_are_readable(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash16"])
    page.click("[aria-label^='Line 23:']")
    page.click("[id^=tab-lanes]")
    assert "Wait for asynchronous copies: until all of each thread's have arrived" in page.panel()
    assert "pending=" not in page.panel()
    emitted = page.js("return document.querySelector('.cuda').textContent")
    assert "ph_cp_async" in emitted and "#line" not in emitted
    page.done()


def values(page: Page, step: int) -> list[float]:
    """What H holds after the step, in the chosen CTA's view."""
    script = "const p = phobosTrace.panes[0]; return [...p.model.memory(p.cta, arguments[0]).get('H').values]"
    return list(page.js(script, step))


def test_atomics_of_one_cta(browser: Any, pages: dict[str, str]) -> None:
    """Values before and after a step differ by what this CTA adds, and what others added is said."""
    page = Page(browser, pages["count"])
    page.click("[aria-label='Last step']")
    assert "without what later CTAs add" in page.panel()
    assert values(page, 1) == [5 * 1.0, 5, 5, 5, 11, 0, 0, 0] and values(page, 2) == [15, 15, 15, 15, 33, 0, 0, 0]
    page.choose(".cta", "1")
    assert "with all that CTA 0 added" in page.panel()
    before, middle, after = (np.array(values(page, n)) for n in (0, 1, 2))
    assert (before == [15, 15, 15, 15, 33, 0, 0, 0]).all()
    assert (middle - before == 4).all() and (after - middle == 8).all()
    page.choose(".cta", "-1")
    assert "updated atomically: the reference runs CTAs one after the other" in page.panel()
    page.done()


def test_lanes_that_share_an_address_of_an_atomic(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["count"])
    page.click("[aria-label='Last step']")
    page.click("[id^=tab-lanes]")
    found = page.js("return phobosTrace.panes[0].model.accesses(0, 2).findIndex(({access: a}) => a.kind === 'atomic')")
    page.choose("[data-keep='access']", str(found))
    text = page.panel()
    assert "31 lanes on 5 addresses, up to 11 on the same one" in text and "up to 11 lanes share an address" in text
    assert "Masked or idle lanes: 31" in text
    page.done()


def test_sectors_of_a_store(browser: Any, pages: dict[str, str]) -> None:
    """A warp stores 8 rows of 32 bytes each: more lines than its bytes need, but every sector in full."""
    page = Page(browser, pages["flash64"])
    page.click("[aria-label='Last step']")
    page.click("[id^=tab-lanes]")
    text = page.panel()
    assert "512 128-byte lines, 384 more than its bytes need; 512 32-byte sectors, all of them used in full" in text
    assert (
        "8 lines of 128 bytes, the fewest for its bytes are 2; 8 sectors of 32 bytes, the fewest for its bytes" in text
    )
    assert page.all(".output .bad") == []
    page.done()


def test_sectors_that_are_not_used_in_full_are_marked(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["bytes"])
    page.click("[id^=tab-lanes]")
    page.js("phobosTrace.panes[0].go(1)")
    marked = [m.text for m in page.all(".output .bad")]
    assert any("sectors" in m and "more than its bytes need" in m for m in marked)
    page.done()


def test_several_lanes_in_a_word_are_explained(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash16"])
    cases = {(3,): 20, (0, 1): 20, (8, 9, 10, 11): 26, (0, 8): 20, (10, 11): 18, (7,): 9}
    texts = [page.js("return lanesText(arguments[0], arguments[1])", list(lanes), w) for lanes, w in cases.items()]
    assert texts == ["3", "0–1", "8–11", "2×", "2×", ""]
    assert page.js("return plural(1, 'byte') + plural(2, 'byte')") == "1 byte2 bytes"
    page.click("[aria-label^='Line 36:']")
    page.click("[id^=tab-lanes]")
    for option in range(len(page.all("[data-keep='access'] option"))):
        page.choose("[data-keep='access']", str(option))
        if "several lanes use the same 4 bytes" in page.panel():
            break
    else:
        pytest.fail("no access of the product has several lanes at one word")
    page.done()


def test_a_chosen_warp_has_the_requests(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash64"])
    page.click("[aria-label='Last step']")
    page.click("[id^=tab-lanes]")
    assert "Request 1 of 64\n" in page.panel() and "Lines separate warps" in page.panel()
    assert "Each cell: lane" not in page.panel()  # the cells are too small for that
    page.choose("[data-keep='Warp']", "2")
    assert "Request 1 of 16 of warp 2" in page.panel() and "Warp 2, numbers are lanes" in page.panel()
    assert "Lines separate warps" not in page.panel() and "of its owner" in page.panel()
    page.js(
        "const s = document.querySelector('[data-keep=request]'); s.value = 15; s.dispatchEvent(new Event('input'))"
    )
    assert "Request 16 of 16 of warp 2" in page.panel() and "Warp 2, numbers are lanes" in page.panel()
    page.done()


def test_labels_of_buffers_do_not_overlap(browser: Any, pages: dict[str, str]) -> None:
    for name in ("flash16", "flash64", "attention"):
        page = Page(browser, pages[name])
        boxes = page.js(
            "return [...document.querySelectorAll('[aria-label=Lifetimes] text')].map(t => t.getBoundingClientRect())"
            ".map(b => [b.left, b.top + 2, b.right, b.bottom - 2])"
        )
        assert len(page.all("[aria-label=Lifetimes] text.buffer")) >= 3
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (name, a, b)
        page.done()


def test_pictures_are_not_tall(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash64"], (1400, 900))
    page.click("[aria-label^='Line 36:']")
    for view in ("tiles", "lanes"):
        page.click(f"[id^=tab-{view}]")
        assert max(c.size["height"] for c in page.all(".output canvas")) < 450
    page.click("[id^=tab-tiles]")
    tops = [f.rect["y"] for f in page.all("[aria-label='Tiles that hold values'] figure")]
    assert len(set(tops)) < len(tops)  # some stand side by side
    page.done()


def test_text_in_cells_can_be_read(browser: Any, pages: dict[str, str]) -> None:
    """On every fill of a value, infinities included, in light and dark."""
    page = Page(browser, pages["flash16"])
    script = """
      const fill = valueColors(), out = [];
      const light = (c) => [...c].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((n, v, i) => n + v * [0.2126, 0.7152, 0.0722][i], 0.05);
      const parts = (c) => c[0] === '#' ? rgb(c) : c.match(/\\d+/g).map(Number);
      for (const v of [-Infinity, Infinity, NaN, ...Array.from({ length: 41 }, (_, i) => i / 20 - 1)]) {
        const [a, b] = [light(parts(fill(v, 1))), light(parts(inkOn(fill(v, 1))))];
        out.push(Math.max(a, b) / Math.min(a, b));
      }
      return out;
    """
    for _ in ("light", "dark"):
        assert min(page.js(script)) > 4
        page.click("#theme")
    page.done()


def test_what_is_not_written_yet(browser: Any, pages: dict[str, str]) -> None:
    from selenium.webdriver.common.keys import Keys

    page = Page(browser, pages["flash16"])

    def first_of_o() -> str:
        page.js("document.querySelector('.output canvas[aria-label^=\"O,\"]').focus()")
        page.press(Keys.ARROW_RIGHT)
        return str(page.find("#tip").text)

    assert first_of_o() == "O[0, 0] is not written yet"
    assert "tensor<f32>[Nq, 64]" in page.panel() and "NaN or not written yet" in page.find(".legend").text
    page.click("[aria-label='Last step']")
    assert first_of_o().startswith("O[0, 0] = ")
    page.done()


def test_header_shows_values_and_both_configurations(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["windowed"])
    text = page.find("#subtitle").text
    assert "scale = 0.5 (not given)" in text and "window = 8 (not given)" in text and "grid 2 × 2 × 1" in text
    page = Page(browser, pages["compare"], (1600, 900))
    notes = [p.text for p in page.all("p.pane-title")]
    assert "Nk = 12" in notes[0] and "grid 2 × 1 × 1" in notes[0]
    assert "Nk = 24" in notes[1] and "grid 1 × 1 × 1" in notes[1]
    assert "grid" not in page.find("#subtitle").text
    page.done()


def test_colours_of_ctas_are_their_own(browser: Any, pages: dict[str, str]) -> None:
    """Not those of memories, and frames around the same elements take turns."""
    page = Page(browser, pages["attention"])
    hues = page.js("return [...Array(8).keys()].map(i => Number(blockColor(i).match(/\\d+/)[0]))")
    assert len(set(hues)) == 8
    for known in (0, 26, 160, 221):  # extra, shared, lanes, global
        assert all(min(abs(h - known), 360 - abs(h - known)) >= 20 for h in hues)
    page.choose(".cta", "-1")
    page.click("[aria-label='Last step']")
    cards = [f.text for f in page.all("[aria-label^='What each CTA'] figure")]
    assert cards and all("stores to O[" in c for c in cards) and not any(c.count("store O") for c in cards)
    page.done()


def test_a_slice_shows_its_own_accesses(browser: Any, pages: dict[str, str]) -> None:
    """Of a tensor of four axes one slice is drawn; what CTAs do in others is said, not drawn there."""
    page = Page(browser, pages["attention"])
    assert "slice [0, 0, :, :]" in page.panel()
    page.choose(".cta", "-1")
    page.click("[aria-label='Last step']")
    output = next(f.text for f in page.all("[aria-label='Global memory'] figure") if f.text.startswith("O "))
    assert "slice [0, 0, :, :]; CTA 3 in O[1, 0, 16:32, 0:32]" in output
    page.done()


def test_the_listing_keeps_numbers_and_highlight(browser: Any, pages: dict[str, str]) -> None:
    page = Page(browser, pages["flash16"], (1200, 900))
    page.js("document.querySelector('.listing').scrollLeft = 150")
    box = page.js("const b = document.querySelector('.listing').getBoundingClientRect(); return [b.left, b.right]")
    line = page.js(
        "const i = document.querySelector('.now-line'), n = i.querySelector('.no').getBoundingClientRect(),"
        " b = i.getBoundingClientRect(); return [n.left, n.right, b.right]"
    )
    assert page.js("return document.querySelector('.listing').scrollLeft") == 150
    assert box[0] <= line[0] < line[1] < box[1] and line[2] >= box[1] - 2
    page.done()


def test_the_focus_ring_of_a_picture_is_inside_its_box(browser: Any, pages: dict[str, str]) -> None:
    """The box around it scrolls and would cut an outline off."""
    page = Page(browser, pages["flash16"])
    page.js("document.querySelector('.output canvas').focus()")
    from selenium.webdriver.common.keys import Keys

    page.press(Keys.ARROW_RIGHT)
    assert page.js("return parseFloat(getComputedStyle(document.activeElement).outlineOffset)") <= -3
    page.done()


def test_the_choice_of_colours_is_kept(browser: Any, pages: dict[str, str]) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    page = Page(browser, pages["flash16"])
    light = page.js(ground)
    page.click("#theme")
    dark = page.js(ground)
    again = Page(browser, pages["flash16"])
    assert again.js(ground) == dark != light and again.find("#theme").text == "Light"
    again.click("#theme")
    assert Page(browser, pages["flash16"]).js(ground) == light
    # A browser that keeps nothing for pages is no error.
    page.js("Object.defineProperty(window, 'localStorage', { get() { throw new Error('no') }, configurable: true })")
    page = Page(browser, pages["flash16"])
    page.js("Storage.prototype.setItem = () => { throw new Error('full') }")
    page.click("#theme")
    assert page.js(ground) == dark
    page.click("#theme")
    page.done()
