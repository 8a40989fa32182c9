"""Write the tables of README.md and docs/ from the results in this folder.

python results/tables.py           # write them
python results/tables.py --check   # change nothing; exit status 1 where a page says something else

A table stands between two comments, of which the first asks for it:

    <!-- results: digits-lt backbone.name=resnet8 methods=softmax,wcdas-prior -->
    <!-- end of results -->

has the runs on digits-lt with exactly these settings, of these methods or else of all; where there
are runs with several imbalances, data.imbalance=… says which. "all" in the place of a dataset is a
section for each protocol, and "paper" the paper's tables beside ours.
"""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from wcdas.errors import InputError
from wcdas.evaluation.table import markdown_table
from wcdas.methods import METHODS
from wcdas.paper import CLAIMS, Setting, Table
from wcdas.paper.tables import (
    TOLERANCE,
    Numbers,
    PrintedTable,
    differences,
    measure,
    of_cell,
    read_table,
    side_by_side,
    told,
    unmeasured,
    verdict,
)
from wcdas.run.recipes import list_recipes, parse_settings
from wcdas.run.settings import read_own, remembered
from wcdas.run.spec import flat
from wcdas.sweeps import Line, read_results
from wcdas.sweeps.results import as_markdown
from wcdas.sweeps.results_file import Protocol, by_protocol, given_settings, select, summary

HERE = Path(__file__).parent
PAGES = [HERE.parent / "README.md", *sorted((HERE.parent / "docs").rglob("*.md"))]
TABLES = [f"table-{number}" for number in (1, 2, 3, 4, 6, 7, 8)]
BEGIN, END = "<!-- results: ", "<!-- end of results -->"
BLOCK = re.compile(rf"{BEGIN}(?P<query>[^\n]+) -->\n.*?{END}", re.DOTALL)


def rewritten(text: str, lines: Sequence[Line]) -> str:
    """Return a page with its tables made anew."""
    if not text.count(BEGIN) == text.count(END) == len(BLOCK.findall(text)):
        raise InputError(f"a table begins with {BEGIN}… --> and does not end with {END}")
    return BLOCK.sub(
        lambda block: f"{BEGIN}{block['query']} -->\n\n{answer(block['query'], lines)}\n\n{END}",
        text,
    )


def answer(query: str, lines: Sequence[Line]) -> str:
    dataset, *words = shlex.split(query)
    if dataset == "all":
        return "\n\n".join(section(*found) for found in by_protocol(lines).items())
    if dataset == "paper":
        return "\n\n".join(beside_the_paper(lines))
    named = [word.removeprefix("methods=") for word in words if word.startswith("methods=")]
    settings = flat(parse_settings([word for word in words if not word.startswith("methods=")]))
    found = select(lines, dataset, settings.pop("data.imbalance", None), settings)
    methods = named[0].split(",") if named else {line["method"] for line in found}
    missing = [m for m in methods if not any(line["method"] == m for line in found)]
    if missing or not found:
        raise InputError(
            f"results/ has no runs of {', '.join(missing) or 'any method'} for {query!r}; add them "
            "with `wcdas results`, or ask for others"
        )
    chosen = [line for line in found if line["method"] in methods]
    return table_of(chosen)


def table_of(lines: Sequence[Line]) -> str:
    return as_markdown(summary(lines)).split("\n\n", 1)[1]  # a page has a title for it


def section(protocol: Protocol, lines: Sequence[Line]) -> str:
    """What was trained under one protocol, the table, the command, and what is missing."""
    recipe, settings = known_recipe(protocol.dataset, lines[0]["settings"])
    of_data = {"data.imbalance": f"{protocol.imbalance:g}"} if protocol.imbalance else {}
    title = [protocol.dataset, *(f"imbalance {value}" for value in of_data.values())]
    title += [f"recipe {recipe}"] if recipe else []
    title += [f"{key} {as_text(value)}" for key, value in settings.items()]
    ran = {line["method"] for line in lines}
    left = [f"`{method}`" for method in METHODS if method not in ran]
    seconds = timedelta(seconds=round(sum(line["seconds"] for line in lines)))
    parts = [
        f"### {', '.join(title)}",
        f"{len(lines)} runs on {lines[0]['metrics']['test_images']:,} test images; {seconds} of "
        f"training in all, on {several(map(device, lines))}; {several(map(code, lines))}.",
        table_of(lines),
        f"Again: `{command(protocol.dataset, lines, recipe, of_data | settings)}`",
    ]
    if left:
        parts.append(f"Not run so, {len(left)} of {len(METHODS)} methods: {', '.join(left)}.")
    return "\n\n".join(parts)


def command(dataset: str, lines: Sequence[Line], recipe: str, settings: Mapping[str, Any]) -> str:
    """The sweep whose runs these are."""
    methods = dict.fromkeys(line["method"] for line in lines)
    seeds = max(line["seed"] for line in lines) + 1
    words = ["wcdas", "sweep", dataset, "--methods", ",".join(methods), "--seeds", str(seeds)]
    words += ["--recipe", recipe] if recipe else []
    given = [f"{key}={as_text(value)}" for key, value in settings.items()]
    words += ["--set", *given] if given else []
    return shlex.join(words)


def known_recipe(dataset: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Take a shipped recipe out of settings that hold all of it, if possible the dataset's own."""
    for name in sorted(list_recipes(), key=lambda name: not name.endswith(dataset)):
        own = given_settings(remembered(read_own(name)[0], {}))
        if own.items() <= settings.items():
            return name, {key: value for key, value in settings.items() if key not in own}
    return "", dict(settings)


def as_text(value: Any) -> str:
    """A value as --set takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def several(texts: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(texts))


def device(line: Line) -> str:
    threads = line["threads"]
    told = f" with {threads} thread{'s' * (threads != 1)}" if threads else ""
    return f"{line['device'] or 'an unknown device'}{told}"


def code(line: Line) -> str:
    known = [f"{key} {line['code'][key]}" for key in ("commit", "source") if key in line["code"]]
    of = {name: line["versions"][name] for name in ("wcdas", "torch")}
    return f"wcdas {of['wcdas']}, {(known or ['commit unknown'])[0]}, PyTorch {of['torch']}"


def beside_the_paper(lines: Sequence[Line]) -> Iterator[str]:
    """The paper's tables that have runs, and the names of those that have none."""
    without = []
    for table in map(read_table, TABLES):
        ours, _ = measure(Setting(HERE, results=lines), table, of_cell)
        if not ours:
            without.append(table.name)
            continue
        missing = {part.label: unmeasured(table, part, ours) for part in table.parts}
        yield f"### {table.name.replace('-', ' ').capitalize()}"
        yield (
            f"{CLAIMS[table.name].statement} By what is measured: *{verdict(table, ours)}*. "
            f"{told(table, ours)[0]}"
        )
        for shown in side_by_side(table, ours, dict.fromkeys(missing, "")):
            if rows := measured_rows(shown):
                yield f"{shown.title}\n\n{markdown_table(rows)}"
        yield "\n".join(sentences(table, ours))
        named = [
            f"{part}: {', '.join(rows) if len(rows) < len(table.rows) else 'all rows'}"
            for part, rows in missing.items()
            if rows
        ]
        if named:
            yield f"Not run, of `wcdas paper {table.name} --mode real`: {'; '.join(named)}."
    if without:
        yield (
            f"No run yet of {', '.join(without)}: `wcdas paper {without[0]} --mode real --out DIR` "
            "trains the rows of one."
        )


def measured_rows(table: Table) -> list[list[str]]:
    """Headings and rows of a table without what has no number of ours."""
    triples = range(1, len(table.columns), 3)
    shown = [i for i in triples if any(row[i + 1] for row in table.rows)]
    rows = [row for row in table.rows if any(row[i + 1] for i in shown)]
    rows = [table.columns, *rows] if rows else []
    return [[row[0], *(cell for i in shown for cell in row[i : i + 3])] for row in rows]


def sentences(table: PrintedTable, ours: Numbers) -> Iterator[str]:
    """Say each difference beyond the tolerance, the largest first, and how many are within it."""
    cells = {", ".join(cell): cell for cell in table.numbers}
    gaps = differences(table, ours)
    far = {name: gap for name, gap in gaps.items() if abs(gap) > TOLERANCE}
    for name, gap in sorted(far.items(), key=lambda item: -abs(item[1])):
        own, theirs = ours[cells[name]], table.numbers[cells[name]]
        where = "higher" if gap > 0 else "lower"
        yield f"- {name}: {own}, the paper has {theirs}: {abs(gap):.1f} points {where}."
    yield f"- {len(gaps) - len(far)} of {len(gaps)} measured cells are within {TOLERANCE} points."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args()
    lines, wrong = read_results(HERE), []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        try:
            new = rewritten(text, lines)
        except InputError as error:
            sys.exit(f"{page}: {error}")
        if new != text:
            wrong.append(page)
            if not options.check:
                page.write_text(new, encoding="utf-8")
    what = "disagrees with results/" if options.check else "written"
    for page in wrong:
        print(f"{page.relative_to(HERE.parent)} {what}")
    sys.exit(bool(wrong and options.check))


if __name__ == "__main__":
    main()
