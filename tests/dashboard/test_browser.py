"""The page in a real browser: charts move, the numbers are the report's, for everybody and from here only."""

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from moments import HOSTILE, report, written
from penstock.dashboard.history import ENDING, Histories, History, point
from penstock.dashboard.server import Dashboard
from penstock.quality.books import Estimate, Sides
from penstock.quality.flows import Flows, Order

driver = pytest.importorskip("playwright.sync_api", reason="pip install playwright: it drives the browser")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = os.environ.get("PENSTOCK_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        BROWSER is None, reason="no Chromium to open the page in; make test-browser says how to get one"
    ),
]
WAIT = 60_000  # milliseconds, on a machine that has much else to do
SMOOTH = 500  # milliseconds, many times what it takes
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with driver.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=2 * WAIT)
        yield started
        started.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"checkpoint{ENDING}"


@pytest.fixture
def served(path: Path) -> Iterator[Dashboard]:
    with Dashboard(Histories([path.parent]), port=0) as dashboard:
        yield dashboard


@pytest.fixture
def visit(browser: Any, served: Dashboard) -> Iterator[Open]:
    """Open the page; whatever it complains of, or asks of another server, is an error in the end."""
    wrong: list[str] = []
    pages = []

    def asked(request: Any) -> None:
        if not request.url.startswith((served.url, "data:")):
            wrong.append(request.url)

    def opened(address: str | None = None, *, width: int = 1280, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme, timezone_id="UTC")
        pages.append(page)
        page.set_default_timeout(WAIT)
        page.on("request", asked)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on(
            "console", lambda said: wrong.append(said.text) if "ERR_CONNECTION_REFUSED" not in said.text else None
        )
        page.goto(address or served.link)
        return page

    yield opened
    for page in pages:
        page.close()
    assert wrong == []


def facts(page: Any) -> dict[str, tuple[str, str]]:
    """Return what the cards say: name, number, and the words below it."""
    page.wait_for_selector("#facts dt")
    cards = page.eval_on_selector_all("#facts > div", "all => all.map(card => card.innerText.split('\\n'))")
    plain = [[text.replace("\u00a0", " ") for text in card if text] for card in cards]
    return {name: (number, *more) for name, number, *more in plain}


def chart(page: Any, title: str) -> Any:
    return page.locator("figure", has=page.locator("h2", has_text=re.compile(f"^{title}\\b")))


def legend(page: Any, title: str) -> list[str]:
    return [text.strip() for text in chart(page, title).locator("li").all_inner_texts()]


def shown(page: Any, name: str, number: str) -> None:
    """Wait until a card says a number."""
    card = page.locator("#facts > div", has=page.locator("dt", has_text=re.compile(f"^{name}$")))
    driver.expect(card.locator("dd").first).to_have_text(number, timeout=WAIT)


def settled(page: Any, expression: str) -> None:
    """Wait until something holds in the page; Playwright's own way needs eval, which the page forbids."""
    while not page.evaluate(expression):
        page.wait_for_timeout(50)


def drawn(page: Any) -> dict[str, str]:
    """Return the picture of every chart that is there."""
    return page.evaluate(
        """() => Object.fromEntries(charts.filter((chart) => !chart.figure.hidden)
            .map((chart) => [chart.about.title, chart.base.toDataURL()]))"""
    )


def busy(page: Any, action: str) -> float:
    """Return how many milliseconds pass until something is done and drawn; the fewest of some turns."""
    timed = f"""async (turn) => {{
        const begin = performance.now();
        {action};
        await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
        return performance.now() - begin;
    }}"""
    return min(page.evaluate(timed, turn) for turn in range(5))


def test_the_numbers_are_those_of_the_report(visit: Open, path: Path) -> None:
    written(path, range(1, 4))
    page, told = visit(), report(3)
    assert told.recall is not None
    assert facts(page) == {
        "Recall": ("75.0%", "between 70.0 and 80.0"),
        "Rows in": (f"{told.arrivals.total:,}", f"left {told.arrivals.left:,} · right {told.arrivals.right:,}"),
        "Pairs out": (f"{told.pairs:,}", "72.6M a row"),
        "Rows held": (f"{told.memory_rows:,}", "of 100 · 0.0 MB"),
        "Rows shed": (f"{sum(count.total for count in told.shed.values()):,}", "budget 9 · late 5"),
        "Not fully probed": (f"{told.unprobed.total:,}", "0.3% of the rows"),
        "Micro-batches": ("4", "last 3.50 s · lag 0.25 s"),
    }
    assert legend(page, "Recall") == [f"recall {told.recall_in_words}"]
    assert legend(page, "Rows held") == [f"left {told.live.left}", f"right {told.live.right}"]
    assert legend(page, "Rows in") == ["left 100", "right 70"]  # 1000 and 700 in ten seconds
    assert legend(page, "Pairs out") == ["pairs 12.3B"]
    assert legend(page, "Rows shed") == ["budget 0.3", "late 0"]
    assert legend(page, "Fully probed") == ["probed 100.0%"]
    assert legend(page, "Micro-batch") == ["took 3.50"]
    assert legend(page, "Lag") == ["newest row 0.25"]


def test_the_numbers_of_a_real_run(visit: Open, path: Path) -> None:
    """They are the report's, and what the join gave back and handed over."""
    rng = np.random.default_rng(5)
    sides = [pa.table({"ts": np.arange(20_000), "k": rng.zipf(1.3, 20_000) % 40}) for _ in range(2)]
    how: dict[str, Any] = {"on": "k", "time": "ts", "window": 30}
    join = pen.Join(**how, memory=20, policy="prob")
    pairs, sheds = [], []
    for batch in range(5):
        left, right = (side[4000 * batch :][:4000] for side in sides)
        pairs.append(join.push(left=left, right=right).num_rows)
        sheds.append(join.ledger().to_pylist())
        keys = Counter(f"{row[row['side']]['k']}" for row in sheds[-1]).most_common(3)
        about: dict[str, Any] = {"time": 1e9 + 1000 * batch, "seconds": 0.5, "budget": 20, "keys": keys}
        History(path).add(point("calls", join.report(), batch=batch, **about))
    page, told = visit(), join.report()
    assert told.recall is not None
    low, mid, high = (100 * share for share in told.recall)
    assert facts(page) == {
        "Recall": (f"{mid:.1f}%", f"between {low:.1f} and {high:.1f}"),
        "Rows in": ("40,000", "left 20,000 · right 20,000"),
        "Pairs out": (f"{told.pairs:,}", f"{told.pairs / 40_000:.3g} a row"),
        "Rows held": (f"{told.memory_rows}", f"of 20 · {told.memory_bytes / 1e6:.1f} MB"),
        "Rows shed": (f"{told.shed['budget'].total:,}", f"budget {told.shed['budget'].total:,}"),
        "Micro-batches": ("5", "last 0.50 s"),
    }
    assert (sum(pairs), sum(map(len, sheds))) == (told.pairs, told.shed["budget"].total)
    assert low <= 100 * told.pairs / pen.join(*sides, **how).num_rows <= high
    assert legend(page, "Recall") == [f"recall {told.recall_in_words}"]
    assert legend(page, "Rows in") == ["left 4", "right 4"]  # 4000 in 1000 seconds
    assert legend(page, "Pairs out") == [f"pairs {pairs[-1] / 1000:.3g}"]
    assert legend(page, "Rows held") == [f"left {told.live.left}", f"right {told.live.right}"]
    assert legend(page, "Rows shed") == [f"budget {len(sheds[-1]) / 1000:.3g}"]
    assert page.locator("#keys td").all_inner_texts() == [f"{each}" for pair in keys for each in pair]


def test_several_streams_and_their_order(visit: Open, path: Path) -> None:
    names = ("orders", "payments", "<b>parcels</b>")
    each = dict(zip(names, (10, 20, 30), strict=True))
    order = Order(5, list(names), 1.0, 2.0, "rate of orders 1 -> 50")
    live, shed = (dict(zip(names, counts, strict=True)) for counts in ((4, 5, 6), (1, 2, 3)))
    told = Flows("prob", each, live, {"budget": shed}, 7, 1000, 99, [order])
    History(path).add(point("several", told, batch=0, time=1e9, seconds=10.0, budget=15))
    page = visit()
    assert facts(page)["Rows in"] == ("60", "orders 10 · payments 20 · <b>parcels</b> 30")
    assert facts(page)["Order"] == ("orders, payments, <b>parcels</b>", "rate of orders 1 -> 50")
    assert legend(page, "Rows held") == ["orders 4", "payments 5", "<b>parcels</b> 6"]
    assert legend(page, "Rows in") == ["orders 1", "payments 2", "<b>parcels</b> 3"]


def test_charts_move_when_the_history_grows(visit: Open, path: Path) -> None:
    written(path, range(1, 4))
    page = visit()
    shown(page, "Micro-batches", "4")
    before = drawn(page)
    assert list(before) == [
        "Rows in", "Pairs out", "Recall", "Rows held", "Rows shed", "Fully probed", "Micro-batch", "Lag"
    ]  # fmt: skip
    written(path, range(4, 9))
    shown(page, "Pairs out", f"{report(8).pairs:,}")
    after = drawn(page)
    assert list(before) == list(after)
    assert not [title for title in before if before[title] == after[title]]
    assert legend(page, "Micro-batch") == ["took 8.50"]


def test_before_the_first_micro_batch(visit: Open, path: Path) -> None:
    page = visit()
    driver.expect(page.locator("#empty")).to_be_visible(timeout=WAIT)
    assert page.inner_text("#state") == "waiting for the first micro-batch"
    assert not page.locator("#charts").is_visible()
    written(path, range(1, 2))
    shown(page, "Micro-batches", "2")
    assert not page.locator("#empty").is_visible()
    assert legend(page, "Rows held") == ["left 40", "right 60"]
    assert legend(page, "Rows in") == ["left -", "right -"]  # since when is not known


def test_what_is_not_known_is_not_shown(visit: Open, path: Path) -> None:
    bare = replace(report(1, recall=None), unprobed=Sides(0, 0), mode="observe")
    History(path).add(point("calls", bare, batch=0, time=1e9, seconds=1.0))
    page = visit()
    cards = facts(page)
    assert cards["Recall"] == ("not known", "nothing was sampled")
    assert cards["Rows held"] == ("101", "0.0 MB")
    assert cards["Would have been shed"] == ("8", "budget 3 · late 5")
    assert cards["Micro-batches"] == ("1", "last 1.00 s")
    assert list(drawn(page)) == ["Rows in", "Pairs out", "Recall", "Rows held", "Rows shed", "Micro-batch"]
    assert chart(page, "Recall").inner_text().endswith("Recall is not known.")
    assert not page.locator("#keys").is_visible()


def test_several_queries_and_names_that_would_be_code(visit: Open, path: Path) -> None:
    written(path, range(1, 3), HOSTILE)
    written(path.with_name(f"z{ENDING}"), range(1, 6), "trades")
    page = visit()
    shown(page, "Micro-batches", "3")
    names = page.eval_on_selector_all("#query option", "all => all.map(option => option.value)")
    assert names == [HOSTILE, "trades"]
    page.select_option("#query", "trades")
    shown(page, "Micro-batches", "6")
    written(path.with_name(f"a{ENDING}"), range(1, 2), "a third")
    written(path, range(3, 5), HOSTILE)
    driver.expect(page.locator("#query option")).to_have_count(3, timeout=WAIT)
    assert page.input_value("#query") == "trades"
    assert facts(page)["Micro-batches"][0] == "6"
    page.select_option("#query", HOSTILE)
    shown(page, "Micro-batches", "5")


def test_keys_are_text(visit: Open, path: Path) -> None:
    written(path, range(1, 3))
    page = visit()
    page.wait_for_selector("#keys tr")
    assert page.locator("#keys td").all_inner_texts() == ["<b>Ada</b>", "2", "", "1"]


def test_a_pointer_tells_of_a_moment(visit: Open, path: Path) -> None:
    written(path, range(1, 6))
    page = visit()
    shown(page, "Micro-batches", "6")
    plot = chart(page, "Micro-batch").locator(".plot")
    box = plot.bounding_box()
    pictures = drawn(page)
    plot.hover(position={"x": box["width"] / 2, "y": 40})
    assert legend(page, "Micro-batch") == ["took 3.50"]
    assert legend(page, "Pairs out") == ["pairs 12.3B"]  # of all charts
    assert plot.get_attribute("aria-label") == "Micro-batch, seconds: took 3.50"
    plot.focus()
    page.keyboard.press("ArrowRight")
    assert legend(page, "Micro-batch") == ["took 4.50"]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert legend(page, "Micro-batch") == ["took 2.50"]
    page.mouse.move(1, 1)
    assert legend(page, "Micro-batch") == ["took 5.50"]
    assert pictures == drawn(page)  # the lines are not drawn anew for it


def test_a_part_of_the_time(visit: Open, path: Path) -> None:
    written(path, range(1, 100))
    page = visit()
    shown(page, "Micro-batches", "100")
    whole = drawn(page)
    page.select_option("#range", "60")
    settled(page, "view.length === 7")
    assert page.evaluate("view[0].batch") == 93
    settled(page, "due === false")
    part = drawn(page)
    assert part["Micro-batch"] != whole["Micro-batch"]
    page.select_option("#range", "")
    settled(page, "view.length === 99 && due === false")
    assert drawn(page) == whole


def luminance(colour: str) -> float:
    red, green, blue = (int(each) / 255 for each in re.findall(r"\d+", colour)[:3])
    curve = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in (red, green, blue)]
    return 0.2126 * curve[0] + 0.7152 * curve[1] + 0.0722 * curve[2]


def test_light_and_dark(visit: Open, path: Path) -> None:
    """Words stand out from what is behind them, as WCAG 2 AA wants it; pictures are drawn anew."""
    written(path, range(1, 9))
    page = visit()
    shown(page, "Micro-batches", "9")
    pictures = []
    for scheme, dark in (("light", False), ("dark", True)):
        page.emulate_media(color_scheme=scheme)
        colour = "getComputedStyle(document.documentElement).getPropertyValue('--card').trim()"
        settled(page, f"due === false && shade('card') === {colour}")
        for element in ("dd", "dd + dd", "dt", "h2 small", "figcaption li"):
            ink = page.eval_on_selector(element, "each => getComputedStyle(each).color")
            card = page.eval_on_selector("figure", "each => getComputedStyle(each).backgroundColor")
            high, low = sorted((luminance(ink), luminance(card)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5
            assert (luminance(card) < 0.1) == dark
        pictures.append(drawn(page))
    assert not [title for title, picture in pictures[0].items() if pictures[1][title] == picture]


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_nothing_is_wider_than_the_screen(visit: Open, path: Path, width: int) -> None:
    large = replace(report(1), arrivals=Sides(10**15, 10**15), memory_rows=10**12, unprobed=Sides(10**14, 10**14))
    keys = [("key" * 66, 10**12)] * 10
    about: dict[str, Any] = {"seconds": 12345.678, "lag": 1e7, "budget": 10**12, "keys": keys}
    for batch in range(3):
        History(path).add(point("name" * 50, large, batch=batch, time=1e9 + batch, **about))
    page = visit(width=width)
    shown(page, "Micro-batches", "3")
    assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    sizes = page.eval_on_selector_all(".plot", "all => all.map(each => each.clientWidth)")
    assert min(size for size in sizes if size) > width / 4


def test_ten_thousand_points(visit: Open, path: Path) -> None:
    """And many more: the old become sparse, first and last stay. The page follows a pointer all the same."""
    written(path, range(1, 10_001))
    page = visit()
    shown(page, "Micro-batches", "10,001")
    assert page.evaluate("view.length") == 10_000
    assert busy(page, "show()") < SMOOTH
    at = "charts[0].plot.getBoundingClientRect().left + 100 + 40 * turn"
    moved = f'charts[0].plot.dispatchEvent(new PointerEvent("pointermove", {{ clientX: {at} }}))'
    assert busy(page, moved) < SMOOTH
    assert page.evaluate("charts[0].x[cursor] > 200")
    page.mouse.move(1, 1)
    written(path, range(10_001, 10_500))
    shown(page, "Pairs out", f"{report(10_499).pairs:,}")
    assert 5_000 <= page.evaluate("view.length") <= 10_000
    assert page.evaluate("[view[0].batch, last(view).batch]") == [1, 10_499]
    assert len(set(drawn(page).values())) == len(drawn(page))


def test_lines_pass_through_the_means_of_what_shares_a_pixel(visit: Open, path: Path) -> None:
    written(path, range(1, 2))
    page = visit()
    got = page.evaluate("columns([0.1, 0.2, 0.4, 1.2, 7.3], [1, 5, 3, 8, 2], 0, 4)")
    assert got == [
        {"x": 0, "mean": 3, "low": 1, "high": 5},
        {"x": 1.2, "mean": 8, "low": 8, "high": 8},
        {"x": 7.3, "mean": 2, "low": 2, "high": 2},
    ]
    assert page.evaluate("stretches([null, 1, 2, null, 3, null])") == [[1, 2], [4, 4]]
    assert page.evaluate("scale(0, 7300, 4)") == [0, 2000, 4000, 6000, 8000]
    assert page.evaluate("scale(0.68, 1, 4)") == [0.6, 0.7, 0.8, 0.9, 1]
    assert page.evaluate("scale(0, 1, 4)") == [0, 0.25, 0.5, 0.75, 1]
    assert page.evaluate("hours(1e9, 1e9 + 100, 4).ticks") == [1e9 + 20, 1e9 + 50, 1e9 + 80]  # 01:46:40 and on


def test_a_query_that_begins_anew(visit: Open, path: Path) -> None:
    written(path, range(1, 9))
    page = visit()
    shown(page, "Micro-batches", "9")
    path.unlink()
    written(path, range(1, 3))
    shown(page, "Micro-batches", "3")
    assert page.evaluate("view.length") == 2


def test_the_page_outlives_its_server(browser: Any, path: Path) -> None:
    """What was seen stays; another server at the same place is taken for what it is."""
    written(path, range(1, 4))
    page = browser.new_page()
    page.set_default_timeout(WAIT)
    with Dashboard(Histories([path]), port=0) as first:
        page.goto(first.link)
        shown(page, "Micro-batches", "4")
    driver.expect(page.locator("#state")).to_have_class("away", timeout=WAIT)
    assert facts(page)["Micro-batches"][0] == "4"
    path.unlink()
    written(path, range(1, 3))
    with Dashboard(Histories([path]), port=first.port):
        shown(page, "Micro-batches", "3")
        assert page.evaluate("view.length") == 2
        assert page.get_attribute("#state", "class") == ""
    page.close()


def test_a_token_opens_the_page_to_its_numbers(browser: Any, path: Path) -> None:
    written(path, range(1, 4))
    page = browser.new_page()
    page.set_default_timeout(WAIT)
    with Dashboard(Histories([path]), port=0, token="sixteen characters & more") as dashboard:  # noqa: S106
        assert page.goto(dashboard.url).status == 401
        assert page.goto(dashboard.link).status == 200
        shown(page, "Micro-batches", "4")
    page.close()


def test_another_page_cannot_read_the_numbers(browser: Any, served: Dashboard, path: Path) -> None:
    """Not by asking for them, not as a script, not in a frame."""
    written(path, range(1, 4))
    with Dashboard(Histories([path]), port=0) as elsewhere:  # the same address, another port: another origin
        page = browser.new_page(bypass_csp=True)
        page.goto(elsewhere.link)
        tried = """async (address) => fetch(address + "data.json").then((got) => got.text(), (error) => "refused")"""
        assert page.evaluate(tried, elsewhere.url).startswith('{"run"')
        assert page.evaluate(tried, served.url) == "refused"
        loaded = """(address) => new Promise((done) => {
            const script = document.createElement("script");
            script.src = address + "data.json";
            script.onload = () => done("loaded");
            script.onerror = () => done("refused");
            document.head.append(script);
        })"""
        assert page.evaluate(loaded, served.url) == "refused"
        page.evaluate("(address) => { document.body.innerHTML = `<iframe src='${address}'></iframe>` }", served.url)
        settled(page, "document.querySelector('iframe')")
        page.wait_for_timeout(500)
        assert not [frame for frame in page.frames[1:] if frame.url.startswith(served.url)]
        page.close()


def test_recall_that_is_exact(visit: Open, path: Path) -> None:
    History(path).add(point("calls", report(1, Estimate(1, 1, 1)), batch=0, time=1e9, seconds=1.0))
    page = visit()
    assert facts(page)["Recall"] == ("100.0%", "exactly")
    assert legend(page, "Recall") == ["recall 100.0%"]
