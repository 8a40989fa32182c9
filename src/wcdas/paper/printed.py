"""What the printed numbers alone decide: the hyper-parameters of Table 5 against the recipes, and
statements about tables that their own cells confirm or contradict."""

from inspect import signature
from typing import Any

from wcdas.heads import WCDASHead
from wcdas.paper.claim import Finding, Setting, Table, judge
from wcdas.paper.runs import read_toml
from wcdas.paper.tables import Cell, read_table
from wcdas.run import Config, read_recipe, resolve

HYPER_PARAMETERS = {
    "epochs": "epochs",
    "representation": "rate, representation",
    "classifier": "rate, classifier",
    "backbone": "backbone",
    "init": "w_ρ starts at",
    "scale": "s",
}
# "We … apply the same training settings as for ImageNet-LT except batch size 512" (Appendix B.1)
SAME_SETTINGS = ("paper-wcdas-imagenet-lt", "paper-wcdas-inat2018")
NOT_SETTINGS = ("label", "backbone")


def recipe_of_the_paper(data: str) -> Config:
    """Return how WCDAS is trained on a dataset with the hyper-parameters of Table 5."""
    return resolve("wcdas", data, [read_recipe(f"paper-wcdas-{data}"), {}], {}, None)


def table_5(setting: Setting) -> Finding:
    """The printed hyper-parameters against the recipes that train with them."""
    printed = read_toml("tables/table-5.toml")
    configs = {name: recipe_of_the_paper(name.removeprefix("paper-wcdas-")) for name in printed}
    trained = {name: _hyper_parameters(config) for name, config in configs.items()}
    wrong = [
        f"{row['label']}: {heading} {row[key]} printed, {trained[name][key]} in {name}"
        for name, row in printed.items()
        for key, heading in HYPER_PARAMETERS.items()
        if row[key] != trained[name][key]
    ]
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
        (str(row["label"]), *(both(row[key], trained[name][key]) for key in HYPER_PARAMETERS))
        for name, row in printed.items()
    )
    note = "One value where the paper and the recipe agree, else the paper's and the recipe's."
    return Finding(
        judge(not wrong and not differ, corrected=not wrong),
        f"The recipes train with {'; '.join(wrong) or 'these values'}. "
        + (contradiction if differ else "")
        + "Batch size (but for iNaturalist), warm-up and augmentation are not in the table; the "
        f"recipes take {not_printed}.",
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


BEFORE, AFTER = 22.5, 25.3  # "our method improved the accuracy from 22.5 to 25.3" (Section 4.4)


def tail_and_head(setting: Setting) -> Finding:
    """The heads of the rows of Table 4 with these tails, as printed."""
    numbers = {
        metric: {
            cell.row: number.mean
            for cell, number in read_table("table-4").numbers.items()
            if cell[1:] == ("ImageNet-LT", metric)
        }
        for metric in ("few", "many")
    }
    few, many = numbers.values()
    before, after = (next(row for row in few if few[row] == tail) for tail in (BEFORE, AFTER))
    shown = [before, *(row for row in few if row.startswith("WCDAS"))]
    rows = tuple((row, f"{few[row]:.1f}", f"{many[row]:.1f}") for row in shown)
    return Finding(
        judge(many[after] >= many[before]),
        f"In Table 4 the row with {BEFORE} on the tail is {before}, that with {AFTER} {after}; "
        f"from one to the other the head goes from {many[before]:.1f} to {many[after]:.1f}, "
        f"{many[after] - many[before]:+.1f} points.",
        {f"{what}, {row}": of[row] for what, of in numbers.items() for row in (before, after)},
        tables=(Table("ImageNet-LT, top-1 in %, as printed", ("", "Few", "Many"), rows),),
    )
