"""What the printed numbers alone decide: the hyper-parameters of Table 5 against the recipes, and
statements about tables that their own cells confirm or contradict."""

from inspect import signature
from itertools import product
from statistics import fmean
from typing import Any

from wcdas.groups import GROUPS
from wcdas.heads import WCDASHead
from wcdas.paper.claim import Finding, Setting, Table, judge
from wcdas.paper.runs import read_toml
from wcdas.paper.tables import Cell, PrintedTable, read_table
from wcdas.run import Config, read_recipe, resolve

HYPER_PARAMETERS = {
    "epochs": "epochs",
    "representation": "rate, representation",
    "classifier": "rate, classifier",
    "backbone": "backbone",
    "init": "w_ρ starts at",
    "scale": "s",
    "batch_size": "batch size",
}
# Of iNaturalist 2018: "We … apply the same training settings as for ImageNet-LT except batch size
# 512" (Appendix B.1). So that of ImageNet-LT is another one.
SAME_SETTINGS = ("paper-wcdas-imagenet-lt", "paper-wcdas-inat2018")
NOT_SETTINGS = ("label", "backbone")


def table_5(setting: Setting) -> Finding:
    """The printed hyper-parameters against the recipes that train with them."""
    printed = read_toml("tables/table-5.toml")
    configs = {
        name: resolve("wcdas", name.removeprefix("paper-wcdas-"), [read_recipe(name), {}], {}, None)
        for name in printed
    }
    trained = {name: _hyper_parameters(config) for name, config in configs.items()}
    wrong = [
        f"{row['label']}: {heading} {row[key]} printed, {trained[name][key]} in {name}"
        for name, row in printed.items()
        for key, heading in HYPER_PARAMETERS.items()
        if row.get(key, trained[name][key]) != trained[name][key]
    ]
    batches = [trained[name]["batch_size"] for name in SAME_SETTINGS]
    if len(set(batches)) == 1:
        wrong.append(
            f"{printed[SAME_SETTINGS[0]]['label']}: a batch size other than that of "
            f"{printed[SAME_SETTINGS[1]]['label']} printed, {batches[0]} in {SAME_SETTINGS[0]}"
        )
    first, second = (printed[name] for name in SAME_SETTINGS)
    differ = [
        f"{HYPER_PARAMETERS[key]} {second[key]} instead of {first[key]}"
        for key in first
        if key not in NOT_SETTINGS and first[key] != second[key]
    ]
    contradiction = (
        "Appendix B.1 says that iNaturalist 2018 has the settings of ImageNet-LT but for the "
        f"batch size; the table has {', '.join(differ)}. "
    )
    not_printed = "; ".join(
        f"{first.batch_size}, {first.warmup:g} epochs, {first.augment} ({name})"
        for name, config in configs.items()
        for first in [config.stages["representation"]]
    )

    def both(of_paper: Any, of_recipe: Any) -> str:
        return str(of_paper) if of_paper == of_recipe else f"{of_paper}, {of_recipe}"

    rows = tuple(
        (str(row["label"]), *(both(row.get(k, "–"), trained[name][k]) for k in HYPER_PARAMETERS))
        for name, row in printed.items()
    )
    note = (
        "One value where the paper and the recipe agree, else the paper's, with – where it gives "
        "none, and the recipe's."
    )
    return Finding(
        judge(not wrong and not differ, corrected=not wrong),
        f"The recipes train with {'; '.join(wrong) or 'these values'}. "
        + (contradiction if differ else "")
        + "Warm-up and augmentation are not printed, nor are batch sizes but that of iNaturalist; "
        f"the recipes take {not_printed}.",
        {"values that differ": len(wrong), "contradictions with the text": len(differ)},
        tables=(Table("Hyper-parameters", ("", *HYPER_PARAMETERS.values()), rows, note),),
    )


def _hyper_parameters(config: Config) -> dict[str, Any]:
    default = {name: p.default for name, p in signature(WCDASHead).parameters.items()}
    head, stages = default | dict(config.head), config.stages
    return {
        "epochs": stages["representation"].epochs,
        "representation": stages["representation"].lr,
        "classifier": stages["classifier"].lr,
        "backbone": config.backbone.name.replace("resnet", "ResNet-"),
        "init": head["init"],
        "scale": head["scale"],
        "batch_size": stages["representation"].batch_size,
    }


def initialisation_spread(setting: Setting) -> Finding:
    """Table 6 (rate 0.2, 90 and 150 epochs) beside Table 2 (rate 0.4, 90 epochs)."""
    slow, fast = read_table("table-6"), read_table("table-2")
    starts = [row.label for row in slow.rows]
    columns = {
        "rate 0.2, 90 epochs": (slow, slow.parts[0].label),
        "rate 0.2, 150 epochs": (slow, slow.parts[1].label),
        "rate 0.4, 90 epochs": (fast, fast.parts[0].label),
    }
    accuracy = {
        name: [table.numbers[Cell(start, part, "all")].mean for start in starts]
        for name, (table, part) in columns.items()
    }
    spreads = {name: max(values) - min(values) for name, values in accuracy.items()}
    before, *after = spreads.values()
    smaller = [value < before for value in after]
    rows = tuple(
        (name, *(f"{v:.1f}" for v in values), f"{spreads[name]:.1f}")
        for name, values in accuracy.items()
    )
    return Finding(
        judge(all(smaller), any(smaller)),
        f"Over the starts {', '.join(starts)} the accuracy of all classes spreads by "
        + ", ".join(f"{value:.1f} points at {name}" for name, value in spreads.items())
        + f": {sum(smaller)} of the two remedies makes it smaller.",
        {f"spread at {name}": value for name, value in spreads.items()},
        tables=(Table("All, in %, as printed", ("", *starts, "largest − smallest"), rows),),
    )


def tail_and_head(setting: Setting) -> Finding:
    """The tail and the head of WCDAS and of its best rivals in Tables 4 and 8, as printed."""
    claimed_before, claimed_after = 22.5, 25.3
    few, many = _column("few"), _column("many")
    rivals = [row for row in few if not row[1].startswith("WCDAS")]
    ours = max((row for row in few if row[1].startswith("WCDAS")), key=few.__getitem__)
    best, head = max(rivals, key=few.__getitem__), max(rivals, key=many.__getitem__)
    tail_gain, head_gain = few[ours] - few[best], many[ours] - many[head]
    as_stated = few[best] <= claimed_before and few[ours] >= claimed_after and head_gain >= 0
    return Finding(
        judge(as_stated, tail_gain > 0 and head_gain >= 0),
        f"The row with {few[ours]:.1f} on the tail is {ours[1]}. The best rival's tail is "
        f"{few[best]:.1f} ({best[1]}, {best[0]}), not {claimed_before}, a gain of "
        f"{tail_gain:+.1f} points; that row's head is {many[ours]:.1f}, {head_gain:+.1f} points "
        f"from the best rival's {many[head]:.1f} ({head[1]}, {head[0]}).",
        {
            "few, WCDAS": few[ours],
            "few, best rival": few[best],
            "many, the same row of WCDAS": many[ours],
            "many, best rival": many[head],
        },
    )


def _column(metric: str) -> dict[tuple[str, str], float]:
    """Return a column of ImageNet-LT by table and row."""
    return {
        (table.name, cell.row): number.mean
        for table in map(read_table, ("table-4", "table-8"))
        for cell, number in table.numbers.items()
        if cell[1:] == ("ImageNet-LT", metric)
    }


ROUNDING = 0.1  # points: 0.05 of All and at most 0.05 of the mean of the groups


def table_totals(setting: Setting) -> Finding:
    """All against Σ_g C_g·accuracy_g / Σ_g C_g over the groups g of C_g classes, since the test
    sets are balanced."""
    # A row that stands in several tables is counted once.
    distinct: dict[tuple[str, str, float, float], str] = {}
    for number in (1, 2, 4, 6, 7, 8):
        for total in totals(read_table(f"table-{number}")):
            distinct.setdefault(total, f"table-{number}")
    off = [(name, *row) for row, name in distinct.items() if abs(row[2] - row[3]) > ROUNDING]
    rows = tuple(
        (name, data, label, f"{printed:.1f}", f"{mean:.2f}", f"{printed - mean:+.2f}")
        for name, data, label, printed, mean in off
    )
    columns = ("table", "dataset", "row", "All, printed", "All, from the groups", "gap")
    title = "Rows whose All does not follow from Many, Medium and Few"
    largest = "."
    if off:
        name, data, label, printed, mean = max(off, key=lambda row: abs(row[3] - row[4]))
        largest = (
            f"; the largest gap is {label} on {data} ({name}), whose groups give {mean:.1f} where "
            f"{printed:.1f} is printed."
        )
    return Finding(
        judge(not off),
        f"Of {len(distinct)} rows with all four numbers, {len(distinct) - len(off)} agree with "
        f"themselves to {ROUNDING} points and {len(off)} do not{largest}",
        {"rows": len(distinct), "rows that contradict themselves": len(off)},
        tables=(Table(title, columns, rows),) if off else (),
    )


def totals(table: PrintedTable) -> list[tuple[str, str, float, float]]:
    """Return dataset, row, printed All, and All from the groups, of rows that have all four."""
    sizes, numbers, found = read_toml("tables/groups.toml"), table.numbers, []
    for part, row in product(table.parts, table.rows):
        cells = [Cell(row.label, part.label, metric) for metric in ("all", *GROUPS)]
        if all(cell in numbers for cell in cells):
            printed, *accuracies = (numbers[cell].mean for cell in cells)
            classes = [sizes[part.data][group] for group in GROUPS]
            found.append((part.data, row.label, printed, fmean(accuracies, classes)))
    return found
