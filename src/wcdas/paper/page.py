"""One page with all verdicts, in one file that needs no other."""

import base64
import inspect
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

import wcdas
from wcdas.files import write_synced
from wcdas.paper import CLAIMS
from wcdas.paper.claim import Claim, Setting, Table, Verdict
from wcdas.paper.order import SECTIONS
from wcdas.paper.results import Result

TITLE = "Wrapped Cauchy Distributed Angular Softmax for Long-Tailed Visual Recognition"
KINDS = {
    Verdict.HOLDS: "holds",
    Verdict.CORRECTED: "corrected",
    Verdict.REFUTED: "refuted",
    Verdict.NEEDS_DATA: "data",
}
NOT_JUDGED = "could not be judged"


def write_page(
    setting: Setting, results: Mapping[str, Result], failures: Mapping[str, str]
) -> Path:
    """index.html in the folder of the run."""
    path = setting.out / "index.html"
    write_synced(path, "\n".join(_page(setting, results, failures)).encode())
    return path


def _page(
    setting: Setting, results: Mapping[str, Result], failures: Mapping[str, str]
) -> Iterator[str]:
    style = (Path(__file__).parent / "page.css").read_text("utf-8")
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>The paper, executed</title>\n<style>\n{style}</style></head><body>"
    yield f"<h1>{escape(TITLE)}</h1>"
    yield "<p>Han, ICML 2023. Every equation, theorem, figure and table, computed again.</p>"
    yield f'<p class="soft">{escape(_told(setting, results, failures))}</p>'
    shown = [name for name in CLAIMS if name in results or name in failures]
    yield from _summary(shown, results)
    for section, names in SECTIONS.items():
        here = [name for name in names if name in shown]
        if here:
            yield f"<h2>{escape(section)}</h2>"
        for name in here:
            if name in results:
                yield from _claim(setting, CLAIMS[name], results[name])
            else:
                yield from _head(CLAIMS[name], "failed", NOT_JUDGED)
                yield f"<p>{escape(failures[name])}</p></article>"
    yield "</body></html>\n"


def _told(setting: Setting, results: Mapping[str, Result], failures: Mapping[str, str]) -> str:
    verdicts = [result.finding.verdict for result in results.values()]
    counts = [f"{verdicts.count(v)} {v}" for v in Verdict if v in verdicts]
    counts += [f"{len(failures)} {NOT_JUDGED}"] if failures else []
    seconds = sum(result.seconds for result in results.values())
    return (
        f"{', '.join(counts)}. wcdas {wcdas.__version__}, {setting.mode} mode, "
        f"{seconds:,.1f} s of work. Equations are numbered as in the paper's source."
    )


def _summary(shown: Iterable[str], results: Mapping[str, Result]) -> Iterator[str]:
    yield '<div class="wide"><table class="summary"><caption>Verdicts</caption>'
    yield '<thead><tr><th scope="col">claim</th><th scope="col">verdict</th>'
    yield '<th scope="col" class="where">place and statement</th></tr></thead><tbody>'
    for name in shown:
        claim = CLAIMS[name]
        verdict = results[name].finding.verdict if name in results else None
        kind, text = (KINDS[verdict], str(verdict)) if verdict else ("failed", NOT_JUDGED)
        yield (
            f'<tr><th scope="row"><a href="#{escape(name)}">{escape(name)}</a></th>'
            f'<td class="verdict {kind}">{escape(text)}</td>'
            f'<td class="where">{escape(claim.place)}: {escape(claim.statement)}</td></tr>'
        )
    yield "</tbody></table></div>"


def _head(claim: Claim, kind: str, verdict: str) -> Iterator[str]:
    yield f'<article class="claim {kind}" id="{escape(claim.name)}">'
    yield f"<h3>{escape(claim.name)}</h3>"
    yield f'<div class="soft">{escape(claim.place)}</div>'
    yield f'<p class="statement">{escape(claim.statement)}</p>'
    yield f'<p><span class="verdict {kind}">{escape(verdict)}</span>'
    yield f'<span class="soft"> · tolerance: {escape(claim.tolerance or "none needed")}</span></p>'


def _claim(setting: Setting, claim: Claim, result: Result) -> Iterator[str]:
    finding = result.finding
    yield from _head(claim, KINDS[finding.verdict], finding.verdict)
    yield f'<p class="soft">check: {escape(_how(claim))}</p>'
    yield f"<p>{escape(finding.sentence)}</p>"
    for figure in finding.figures:
        yield _figure(setting, figure, claim)
    for table in finding.tables:
        yield from _table(table)
    if finding.numbers:
        yield '<details><summary class="soft">numbers</summary><div class="wide">'
        yield '<table class="numbers"><tbody>'
        for key, value in finding.numbers.items():
            yield f'<tr><th scope="row">{escape(key)}</th><td>{value:.8g}</td></tr>'
        yield "</tbody></table></div></details>"
    yield "</article>"


def _how(claim: Claim) -> str:
    """What the check says of itself, and where it is."""
    words = (inspect.getdoc(claim.check) or "").split("\n\n")[0].replace("`", "")
    return " ".join(f"{words} ({claim.check.__module__})".split())


def _figure(setting: Setting, path: Path, claim: Claim) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    png = path.with_suffix(".png").relative_to(setting.out)
    svg = path.relative_to(setting.out)
    alt = escape(f"{path.stem}: {claim.statement}", quote=True)
    return (
        f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{alt}">'
        f'<figcaption class="soft"><a href="{svg}">SVG</a> · <a href="{png}">PNG</a></figcaption>'
        "</figure>"
    )


def _table(table: Table) -> Iterator[str]:
    yield f'<div class="wide"><table class="results"><caption>{escape(table.title)}</caption>'
    cells = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.columns)
    yield f"<thead><tr>{cells}</tr></thead><tbody>"
    for row in table.rows:
        first, *rest = (escape(cell) for cell in row)
        yield f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{c}</td>" for c in rest) + "</tr>"
    yield "</tbody></table></div>"
    if table.note:
        yield f'<p class="soft">{escape(table.note)}</p>'
