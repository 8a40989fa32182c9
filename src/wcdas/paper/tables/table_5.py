"""Table 5: the hyper-parameters, against the recipes that train with them."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from wcdas.heads import WCDASHead
from wcdas.paper.claim import Claim, Finding, Setting, Table, judge
from wcdas.paper.tables.printed import read_toml
from wcdas.run.recipes import read_recipe, resolve
from wcdas.run.spec import Config

HEADINGS = {
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


def check(setting: Setting, printed: Mapping[str, Mapping[str, Any]] | None = None) -> Finding:
    printed = printed or read_toml("printed/table-5.toml")
    configs = {name: _config(name) for name in printed}
    trained = {name: _hyper_parameters(config) for name, config in configs.items()}
    wrong = [
        f"{row['label']}: {HEADINGS[key]} {row[key]} printed, {trained[name][key]} in {name}"
        for name, row in printed.items()
        for key in HEADINGS
        if row[key] != trained[name][key]
    ]
    first, second = (printed[name] for name in SAME_SETTINGS)
    differ = [
        f"{HEADINGS[key]} {second[key]} instead of {first[key]}"
        for key in first
        if key not in NOT_SETTINGS and first[key] != second[key]
    ]
    sentence = (
        f"The recipes train with {'; '.join(wrong) or 'these values'}. "
        + (
            "Appendix B.1 says that iNaturalist 2018 has the settings of ImageNet-LT but for the "
            f"batch size; the table has {', '.join(differ)}. "
            if differ
            else ""
        )
        + "Batch size (but for iNaturalist), warm-up and augmentation are not in the table; the "
        f"recipes take {_open(configs)}."
    )
    return Finding(
        judge(not wrong and not differ, corrected=not wrong),
        sentence,
        {"values that differ": len(wrong), "contradictions with the text": len(differ)},
        tables=(_table(printed, trained),),
    )


def _config(recipe: str) -> Config:
    dataset = recipe.removeprefix("paper-wcdas-")
    return resolve("wcdas", dataset, [read_recipe(recipe), {}], {}, None)


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


def _open(configs: Mapping[str, Config]) -> str:
    def of(config: Config) -> str:
        first = config.stages["representation"]
        return f"{first.batch_size}, {first.warmup:g} epochs, {first.augment}"

    return "; ".join(f"{of(config)} ({name})" for name, config in configs.items())


def _table(
    printed: Mapping[str, Mapping[str, Any]], trained: Mapping[str, Mapping[str, Any]]
) -> Table:
    rows = tuple(
        (str(row["label"]), *(_both(row[key], trained[name][key]) for key in HEADINGS))
        for name, row in printed.items()
    )
    note = "One value where the paper and the recipe agree, else the paper's and the recipe's."
    return Table("Hyper-parameters", ("", *HEADINGS.values()), rows, note)


def _both(printed: Any, trained: Any) -> str:
    return str(printed) if printed == trained else f"{printed}, {trained}"


CLAIMS = (
    Claim(
        "table-5",
        "Appendix B.1, Table 5",
        "Epochs, rates, backbone, start of w_ρ and s of each dataset; iNaturalist 2018 is trained "
        "as ImageNet-LT but for the batch size.",
        "a moment",
        check,
        "none: the values are equal or not",
    ),
)
