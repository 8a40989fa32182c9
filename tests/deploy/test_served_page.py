"""The served page in a real browser: Debian's chromium, driven by Playwright."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

import wcdas

NAME = 'it\'s "<img src=x onerror=alert(1)>".png'


@pytest.fixture
def page(browser, address, patience) -> Iterator:
    """The page on a desktop; nothing in it may run, load from elsewhere or fail."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    context.set_default_timeout(patience)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append("dialog"), dialog.dismiss()))
    elsewhere = lambda r: not r.url.startswith((address, "blob:", "data:"))  # noqa: E731
    page.on("request", lambda request: wrong.append(request.url) if elsewhere(request) else None)
    # Before the page is there, so that the browser hands its dialogs over from then on.
    page.choosers = []
    page.on("filechooser", lambda chooser: page.choosers.append(chooser))
    page.goto(address)
    page.get_by_text("at most 1 MB").wait_for()
    yield page
    assert wrong == []
    context.close()


@pytest.fixture
def picture(every_kind, tmp_path) -> Path:
    return Path(shutil.copy(every_kind / "colour.png", tmp_path / NAME))


def shown(page) -> list[str]:
    page.locator("#result:not(.busy)").wait_for()
    return page.locator("#top li span").all_inner_texts()


def wait(page, until: Callable[[], object]) -> None:
    while not until():
        page.wait_for_timeout(20)


def test_a_picture(page, picture, odd_run, odd_names):
    page.set_input_files("#file", picture)
    rows = shown(page)
    (answer,) = wcdas.predict_files(odd_run, picture, device="cpu")
    best = answer.top[0]
    assert page.locator("#answer").text_content() == best.name
    assert (
        page.locator("#sure").inner_text() == f"The model is {100 * best.probability:.1f} % sure."
    )
    assert f"it had {best.train_images}" in page.locator("#group").inner_text()
    assert rows[1::2] == [f"{100 * guess.probability:.1f} %" for guess in answer.top]
    assert page.locator("#top li div span:first-child").evaluate_all(
        "spans => spans.map(span => span.textContent)"
    ) == [guess.name for guess in answer.top]
    assert page.locator("progress").evaluate_all("bars => bars.map(bar => bar.value)") == (
        pytest.approx([guess.probability for guess in answer.top], abs=1e-5)
    )
    # Names of classes and files are text; the one image is the picture.
    assert page.locator("#name").text_content() == NAME
    assert page.locator("img").count() == 1
    assert page.locator("img").get_attribute("alt") == NAME
    assert page.locator("img").evaluate("image => image.naturalWidth") == 160
    assert 'data "of" <b>odd names' in page.locator("#model").inner_text()


def test_a_text_file_and_then_a_picture(page, picture, tmp_path):
    text = tmp_path / 'no "picture" <b>.txt'
    text.write_text("just some text")
    page.set_input_files("#file", text)
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text() == (
        'no "picture" <b>.txt: the file cannot be read: not an image that can be read'
    )
    assert page.locator("#result").is_hidden()
    page.set_input_files("#file", picture)
    shown(page)
    assert alert.is_hidden()


def test_a_file_that_is_too_large(page, tmp_path):
    large = tmp_path / "large.bmp"
    Image.new("RGB", (600, 600)).save(large)
    assert large.stat().st_size > 1_000_000
    page.set_input_files("#file", large)
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text() == "large.bmp: the file is larger than 1 MB"


def test_a_picture_that_is_dropped(page, picture):
    data = page.evaluate_handle(
        """async ([name, bytes]) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], name, { type: "image/png" }));
            return data;
        }""",
        [NAME, list(picture.read_bytes())],
    )
    page.dispatch_event("#drop", "dragover", {"dataTransfer": data})
    assert page.locator("#drop.over").count() == 1
    page.dispatch_event("body", "drop", {"dataTransfer": data})
    assert len(shown(page)) == 6
    assert page.locator("#drop.over").count() == 0


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_by_keyboard(page, picture, key):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "theme"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file"
    assert (
        page.locator("#drop").evaluate("field => getComputedStyle(field).outlineStyle") == "solid"
    )
    page.keyboard.press(key)
    wait(page, lambda: page.choosers)
    page.choosers[0].set_files(picture)
    shown(page)


def test_the_last_of_several_pictures_is_shown(page, every_kind):
    """Whatever the order of the replies."""
    held = []
    page.route("**/predict", lambda route: held.append(route))
    for name in ("grey.png", "rgba.png"):
        page.set_input_files("#file", every_kind / name)
    wait(page, lambda: len(held) == 2)
    held[1].continue_()
    page.locator("#name", has_text="rgba.png").wait_for()
    with page.expect_response("**/predict"):
        held[0].continue_()
    page.evaluate("fetch('/health').then((reply) => reply.json())")  # a reply that comes later yet
    assert page.locator("#name").inner_text() == "rgba.png"


def test_a_model_that_is_unsure(browser, doubtful_address, picture, patience):
    page = browser.new_page()
    page.set_default_timeout(patience)
    page.goto(doubtful_address)
    page.set_input_files("#file", picture)
    shown(page)
    assert page.locator("#answer").inner_text() == "Unsure"
    assert "too little for an answer" in page.locator("#sure").inner_text()
    assert page.locator("#top li").count() == 3
    page.close()


def luminance(colour: str) -> float:
    channels = [float(part) / 255 for part in colour.strip("rgb()").split(",")]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrasts(page) -> dict[str, float]:
    """Of text with the ground it stands on, as WCAG 2 defines it."""
    places = {"#answer": "body", "#group": "body", "#limit": "#drop", "#error": "body",
              "#theme": "#theme", "small": "body"}  # fmt: skip
    found = {}
    for text, ground in places.items():
        colours = [
            page.locator(where).first.evaluate(f"e => getComputedStyle(e).{what}")
            for where, what in ((text, "color"), (ground, "backgroundColor"))
        ]
        low, high = sorted(map(luminance, colours))
        found[text] = (high + 0.05) / (low + 0.05)
    return found


def test_both_themes_can_be_read(page, picture):
    page.set_input_files("#file", picture)
    shown(page)
    light = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    assert min(contrasts(page).values()) >= 4.5
    page.get_by_role("button", name="Dark mode").click()
    assert page.locator("body").evaluate("b => getComputedStyle(b).backgroundColor") != light
    assert min(contrasts(page).values()) >= 4.5
    page.get_by_role("button", name="Light mode").click()
    assert page.locator("body").evaluate("b => getComputedStyle(b).backgroundColor") == light


def test_it_fits_a_phone(page, picture):
    page.set_viewport_size({"width": 390, "height": 844})
    page.set_input_files("#file", picture)
    shown(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#theme").bounding_box()["height"] < 45


def test_a_server_that_is_gone(page, picture):
    page.route("**/predict", lambda route: route.abort())
    page.set_input_files("#file", picture)
    page.get_by_role("alert").wait_for()
    assert "is wcdas serve still running?" in page.get_by_role("alert").inner_text()
