"""One page with all verdicts, in one file that needs no other."""

import base64
import inspect
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import wcdas
from wcdas.files import write_synced
from wcdas.paper import CLAIMS, SECTIONS
from wcdas.paper.claim import Claim, Setting, Verdict
from wcdas.paper.folder import Result
from wcdas.paper.typeset import typeset

KINDS = dict(zip(Verdict, ("holds", "corrected", "refuted", "data"), strict=True))
NOT_JUDGED = "could not be judged"


def write_page(
    setting: Setting, results: Mapping[str, Result], failures: Mapping[str, str]
) -> Path:
    """Write index.html in the folder of the run."""
    shown = [name for name in CLAIMS if name in results or name in failures]
    verdicts = {name: result.finding.verdict for name, result in results.items()}
    counts = [tally(results), f"{NOT_JUDGED}: {len(failures)}" if failures else ""]
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["typeset"] = typeset
    page = templates.get_template("page.html").render(
        counts=", ".join(filter(None, counts)),
        version=wcdas.__version__,
        mode=setting.mode,
        seconds=sum(result.seconds for result in results.values()),
        sections={title: [n for n in names if n in shown] for title, names in SECTIONS.items()},
        claims={name: CLAIMS[name] for name in shown},
        results=results,
        failures=failures,
        kinds={name: KINDS[verdicts[name]] if name in verdicts else "failed" for name in shown},
        verdicts={name: verdicts.get(name, NOT_JUDGED) for name in shown},
        how=_how,
        encoded=lambda path: base64.b64encode(path.read_bytes()).decode(),
        relative=lambda path: path.relative_to(setting.out),
    )
    path = setting.out / "index.html"
    write_synced(path, page.encode())
    return path


def tally(results: Mapping[str, Result]) -> str:
    """Return how many claims came to which verdict."""
    verdicts = [result.finding.verdict for result in results.values()]
    return ", ".join(f"{v}: {verdicts.count(v)}" for v in Verdict if v in verdicts)


def _how(claim: Claim) -> str:
    """Return what the check says of itself, and where it is."""
    words = (inspect.getdoc(claim.check) or "").split("\n\n")[0].replace("`", "")
    return " ".join(f"{words} ({claim.check.__module__})".split())
