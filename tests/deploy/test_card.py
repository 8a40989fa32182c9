"""The model card has the run's numbers, and names as text."""

import markdown
import pytest
import torch
from markdown_it import MarkdownIt

import wcdas
from wcdas.deploy.card import escaped, model_card
from wcdas.evaluation import evaluate


@pytest.fixture(scope="module")
def card(odd_run, tmp_path_factory) -> str:
    path = wcdas.export(odd_run, "card", tmp_path_factory.mktemp("card") / "card.md").path
    return path.read_text(encoding="utf-8")


def test_the_numbers_by_group_are_those_of_the_run(card, odd_run):
    metrics = odd_run.metrics
    rows = {"many (> 100)": "many", "medium (20–100)": "medium", "few (< 20)": "few"}
    for label, name in rows.items():
        classes = metrics["group_classes"][name]
        assert f"| {label} | {classes} | {100 * metrics[name]:.1f} |" in card
    assert f"| all (balanced) | 3 | {100 * metrics['balanced_accuracy']:.1f} |" in card
    assert f"On {metrics['test_images']} test images" in card


def test_the_tail_the_use_and_the_limits(card):
    assert "The largest class has 104 training images, the smallest 6: an imbalance of 17." in card
    assert "many (> 100) 1, medium (20–100) 1, few (< 20) 1." in card
    assert "1 of its classes had fewer than 20 training images" in card
    for heading in ("Intended use", "Limits", "How to use it", "How to reproduce it"):
        assert f"\n## {heading}\n" in card
    assert "trained to expect classes that are equally frequent" in card


def rendered(text: str) -> dict[str, str]:
    body = text.split("---\n", 2)[-1]
    return {
        "commonmark": MarkdownIt("commonmark", {"html": True}).enable("table").render(body),
        "python-markdown": markdown.markdown(body, extensions=["tables", "fenced_code"]),
    }


@pytest.mark.parametrize("reader", ["commonmark", "python-markdown"])
def test_names_are_text_in_the_page_it_becomes(card, reader):
    page = rendered(card)[reader]
    assert "<img" not in page
    assert "<b>" not in page
    assert '<a href="e"' not in page
    rows = [line for line in page.splitlines() if line.startswith("<td")]
    assert len(rows) >= 12 + 9  # four rows by group and three classes, of three cells


@pytest.mark.parametrize("reader", ["commonmark", "python-markdown"])
@pytest.mark.parametrize(
    "name",
    ["<img src=x onerror=alert(1)>", "a|b", "*bold* _and_ `code`", "[x](http://y.z)", "&lt;", "\\",
     "www.example.com", "https://example.com", "~~no~~", "$x$", "@user #1", "![i](j)", "été"],
)  # fmt: skip
def test_any_name_shows_its_own_characters(name, reader):
    page = rendered(f"---\n---\n\nThe class {escaped(name)} is here.")[reader]
    from html.parser import HTMLParser

    tags, texts = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            tags.append(tag)

        def handle_data(self, data):
            texts.append(data)

    Reader().feed(page)
    assert tags == ["p"]
    assert "".join(texts).strip() == f"The class {name} is here."


def test_data_without_test_images(odd_run):
    model = wcdas.load(odd_run, device="cpu")
    nothing = evaluate(torch.zeros(0, 3), torch.zeros(0).long(), [104, 24, 6], model.class_names)
    card = model_card(model, nothing, None)
    assert "Not measured: the data had no test images." in card
    assert "| rare | 6 | – |" in card
    assert "eval" not in card.split("---")[1]


def test_beside_the_model(odd_run):
    assert wcdas.export(odd_run, "card").path == odd_run.path / "MODEL_CARD.md"


def test_weights_it_started_from(card, odd_run):
    run = {"backbone": {"weights": "pretrained"}, "augment": {"flip": True}, "seed": 0}
    run["info"] = {"fingerprint": "f", "versions": {}, "weights": "package some model"}
    run["stages"] = {"representation": {"augment": "standard"}}
    text = model_card(odd_run.model, odd_run.metrics, run)
    assert "It started from pretrained weights, package some model; mind their licence." in text
    assert "It learnt mirrored images too" in text
    run["stages"] = {"representation": {"augment": "none"}}
    assert "mirrored" not in model_card(odd_run.model, odd_run.metrics, run)
    assert "licence" not in card
