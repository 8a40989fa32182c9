"""The pages as a reader uses them, in a real browser."""

from xml.etree import ElementTree

from playwright.sync_api import Page, expect

from wcdas.report import write_report

SORTED = "[data-table] tbody tr th"
TIP = ".tip >> visible=true"


def first_column(page: Page) -> list[str]:
    return page.locator(SORTED).all_inner_texts()


def open_page(page: Page, run, name="report.html") -> None:
    page.goto((run.path / name).as_uri())


def scrolled_to(page: Page, chart: str):
    place = page.locator(f"#chart-{chart}")
    place.scroll_into_view_if_needed()
    expect(place.locator("canvas")).to_be_visible()
    return place


def point(page: Page, chart: str, series: int, index: int) -> tuple[float, float]:
    """Where on the screen a dot of a chart is."""
    box = scrolled_to(page, chart).bounding_box()
    at = page.evaluate(
        """([chart, series, index]) => {
            const drawn = echarts.getInstanceByDom(document.getElementById("chart-" + chart));
            const data = JSON.parse(document.getElementById("data").textContent);
            const of = data.charts[chart].series[series];
            return drawn.convertToPixel({ seriesIndex: series }, [of.x[index], of.y[index]]);
        }""",
        [chart, series, index],
    )
    return box["x"] + at[0], box["y"] + at[1]


def test_the_table_sorts_both_ways_with_unknown_last(page, odd_run):
    open_page(page, odd_run)
    head = page.get_by_role("columnheader", name="accuracy %")
    assert head.get_attribute("aria-sort") == "none"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    up = first_column(page)
    assert up[-1] == "never tested"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    down = first_column(page)
    assert down[-1] == "never tested"
    accuracy = {row["class"]: row["accuracy"] for row in odd_run.metrics["per_class"]}
    upwards, downwards = ([accuracy[name] for name in names[:-1]] for names in (up, down))
    assert upwards == sorted(upwards)
    assert downwards == sorted(downwards, reverse=True)
    head = page.get_by_role("columnheader", name="training images")
    by_images = sorted(odd_run.metrics["per_class"], key=lambda row: row["train_images"])
    names = [row["class"] for row in by_images]
    for order in (names, names[::-1]):
        head.get_by_role("button").click()
        assert first_column(page) == order


def test_search_narrows_the_table_and_lights_the_dots(page, digits_run):
    open_page(page, digits_run)
    scrolled_to(page, "accuracy")
    page.get_by_label("Search a class").fill("3")
    assert first_column(page) == ["3"]
    expect(page.locator("[data-table] [role=status]")).to_have_text("1 of 10 classes")
    page.wait_for_function(
        """() => {
            const drawn = echarts.getInstanceByDom(document.getElementById("chart-accuracy"));
            const points = drawn.getOption().series.flatMap((series) => series.data);
            return points.filter((at) => at.symbolSize).length === 1
                && points.filter((at) => at.itemStyle?.opacity < 0.5).length === 9;
        }"""
    )
    page.get_by_label("Search a class").fill("no such class")
    assert first_column(page) == []
    page.get_by_label("Search a class").fill("")
    assert len(first_column(page)) == 10


def test_hovering_shows_the_class(page, digits_run):
    open_page(page, digits_run)
    for chart in ("accuracy", "rho", "tail"):
        page.mouse.move(*point(page, chart, series=0, index=0))
        expect(page.locator(TIP)).to_contain_text("training images: 120")
        expect(page.locator(TIP).locator("strong")).to_have_text("0")
        page.mouse.move(0, 0)


def test_hovering_shows_markup_as_text(page, odd_run):
    open_page(page, odd_run)
    page.mouse.move(*point(page, "accuracy", series=0, index=0))
    expect(page.locator(TIP).locator("strong")).to_have_text("<img src=x onerror=alert(1)>")
    page.get_by_label("Search a class").fill("onerror")
    assert first_column(page) == ["<img src=x onerror=alert(1)>"]
    assert page.locator("img[src=x]").count() == 0


def test_theme_switch_changes_page_and_charts_and_is_kept(page, digits_run):
    open_page(page, digits_run)
    scrolled_to(page, "accuracy")
    button = page.locator("#theme")

    def looks():
        return page.evaluate(
            """() => [
                getComputedStyle(document.body).backgroundColor,
                echarts.getInstanceByDom(document.getElementById("chart-accuracy"))
                    .getOption().series[0].itemStyle.color,
            ]"""
        )

    light = looks()
    button.click()
    assert (button.inner_text(), looks()) == ("Theme: light", light)
    button.click()
    dark = looks()
    assert button.inner_text() == "Theme: dark"
    assert all(one != other for one, other in zip(light, dark, strict=True))
    page.reload()
    assert button.inner_text() == "Theme: dark"
    scrolled_to(page, "accuracy")
    assert looks() == dark


def test_dark_where_the_system_is_dark(page, digits_run):
    page.emulate_media(color_scheme="dark")
    open_page(page, digits_run)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"


def test_a_phone_scrolls_down_only(page, odd_run, odd_softmax, many_classes, tmp_path):
    compared = write_report(odd_run, odd_softmax, out=tmp_path / "both")
    page.set_viewport_size({"width": 390, "height": 844})
    for file in (odd_run.path / "report.html", many_classes / "report.html", compared):
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_charts_by_keyboard(page, digits_run):
    open_page(page, digits_run)
    scrolled_to(page, "accuracy").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(TIP)).to_contain_text("training images: 120")
    expect(page.locator("#spoken")).to_contain_text("0, group: many")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#spoken")).to_contain_text("4, group: medium")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#spoken")).to_contain_text("3, group: medium")
    page.keyboard.press("Escape")
    expect(page.locator(TIP)).to_have_count(0)


def test_everything_that_can_be_used_is_reached_by_tab(page, odd_run):
    open_page(page, odd_run)
    reached = set()
    for _ in range(100):
        page.keyboard.press("Tab")
        place = page.evaluate(
            "() => [document.activeElement.id, document.activeElement.textContent.slice(0, 20)]"
        )
        reached.add(place[0] or place[1])
    charts = {
        f"chart-{name}" for name in page.evaluate("Object.keys(JSON.parse(data.text).charts)")
    }
    assert charts <= reached
    assert {"theme", "classes-search", "To the content"} <= reached
    assert any(name.startswith("accuracy %") for name in reached)


def test_the_numbers_of_a_chart_as_a_table(page, digits_run):
    open_page(page, digits_run)
    details = page.locator("[data-numbers=reliability]")
    details.locator("summary").click()
    expect(details.locator("tbody tr")).to_have_count(15 + 2)


def test_charts_are_saved_as_files(page, digits_run, tmp_path):
    open_page(page, digits_run)
    for kind, begins in (("SVG", b"<svg "), ("PNG", b"\x89PNG")):
        with page.expect_download() as saving:
            page.get_by_role("button", name=f"Save the chart “Reliability” as {kind}").click()
        assert saving.value.suggested_filename == f"reliability.{kind.lower()}"
        saving.value.save_as(tmp_path / kind)
        assert (tmp_path / kind).read_bytes().startswith(begins)
    ElementTree.parse(tmp_path / "SVG")


def test_8142_classes_open(page, many_classes):
    file = many_classes / "report.html"
    assert file.stat().st_size < 20e6
    page.goto(file.as_uri())
    expect(page.locator("[data-table] [role=status]")).to_have_text("8,142 of 8,142 classes")
    page.get_by_role("button", name="Next", exact=True).click()
    expect(page.locator(".pages span")).to_have_text("page 2 of 163")
    page.get_by_label("Search a class").fill("number 8141")
    assert len(first_column(page)) == 1


def test_comparison_shows_what_changed(page, odd_run, odd_softmax, tmp_path):
    page.goto(write_report(odd_softmax, odd_run, out=tmp_path / "both").as_uri())
    page.get_by_role("button", name="wcdas − softmax").click()
    assert first_column(page)[-1] == "never tested"
    page.mouse.move(*point(page, "accuracy", series=1, index=0))
    expect(page.locator(TIP)).to_contain_text("wcdas − softmax")


def is_visible(page: Page, selector: str) -> list[bool]:
    return [found.is_visible() for found in page.locator(selector).all()]


def test_every_chart_is_on_paper_in_light_colours(page, odd_run, odd_softmax, tmp_path):
    compared = write_report(odd_run, odd_softmax, out=tmp_path / "both")
    page.emulate_media(color_scheme="dark")
    for file in (odd_run.path / "report.html", compared):
        page.goto(file.as_uri())
        charts = page.locator("[data-chart]").count()
        page.emulate_media(media="print")
        expect(page.locator(".paper svg path >> visible=true").first).to_be_visible()
        figures = page.locator("figure.chart")
        assert figures.count() == charts
        for figure in figures.all():
            box = figure.locator("svg").bounding_box()
            assert box["width"] > 500
            assert box["height"] > 150
            assert figure.locator("svg path").count() > 5
        back = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(back) == "rgb(255, 255, 255)"
        assert not any(
            is_visible(page, "nav, #theme, .files, input, .plot, summary, .pages button")
        )
        assert all(is_visible(page, "main section, main section h2, main pre"))
        page.emulate_media(media="screen")
        expect(page.locator(".paper")).to_have_count(0)
        assert page.evaluate(back) == "rgb(22, 24, 27)"
        assert all(is_visible(page, "nav, #theme, .plot"))
        assert not any(is_visible(page, "details pre"))


def test_a_pdf_is_made_of_what_is_on_paper(page, digits_run):
    open_page(page, digits_run)
    page.evaluate(
        """() => addEventListener("beforeprint", () => {
            window.printed = document.querySelectorAll(".paper svg[viewBox]").length;
        })"""
    )
    assert page.pdf().startswith(b"%PDF")
    assert page.evaluate("window.printed") == page.locator("[data-chart]").count() > 5
    expect(page.locator(".paper")).to_have_count(0)


def test_all_classes_that_a_search_finds_are_on_paper(page, many_classes):
    page.goto((many_classes / "report.html").as_uri())
    page.get_by_label("Search a class").fill("number 81")
    page.get_by_role("button", name="Next", exact=True).click()
    page.emulate_media(media="print")
    expect(page.locator(SORTED)).to_have_count(53)
    page.emulate_media(media="screen")
    expect(page.locator(".pages span")).to_have_text("page 2 of 2")
    page.get_by_label("Search a class").fill("")
    page.emulate_media(media="print")
    expect(page.locator(SORTED)).to_have_count(1000)
    expect(page.locator("[data-table] [role=status]")).to_have_text(
        "8,142 of 8,142 classes; the first 1,000 of them"
    )
