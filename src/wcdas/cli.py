"""The command line; it parses, calls and prints."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from wcdas.errors import InputError, InterruptedRunError, WorkError

app = typer.Typer(
    help="Image classification on long-tailed data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
console = Console(soft_wrap=True, highlight=False)

Data = Annotated[
    str | None,
    typer.Argument(help="A dataset's name, a folder of class folders, a list file, Parquet, .npy."),
]
Run = Annotated[Path, typer.Argument(help="A run's folder, or its model.safetensors.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE …", help="Single values over the recipe."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Workers = Annotated[
    int | None, typer.Option(min=0, help="Processes that decode images [default: cores − 1].")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable images out.")]
OtherData = Annotated[
    str | None, typer.Option("--data", help="Another dataset [default: the run's own].")
]


@app.command(epilog="Example: wcdas check ~/pictures")
def check(
    data: Annotated[str, typer.Argument(help="What `wcdas train` would be given.")],
    settings: Set = None,
    skip_bad: SkipBad = False,
) -> None:
    """Show a dataset's tail, bad files and duplicates; trains nothing."""
    from wcdas.api import check_data

    for line in check_data(data, settings or [], skip_bad):
        console.print(line)


@app.command(
    epilog="Examples: wcdas train · wcdas train ~/pictures --seed 1 · "
    "wcdas train cifar100-lt --set data.imbalance=50 epochs=100 · "
    "wcdas train --out runs/digits-lt-wcdas-s0-1 --resume"
)
def train(
    data: Data = None,
    method: Annotated[
        str | None, typer.Option(help="See `wcdas list methods` [default: wcdas].")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="A shipped recipe's name, or a TOML file.")
    ] = None,
    settings: Set = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random [default: 0].")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder [default: runs/DATA-METHOD-sSEED-N].")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    device: Device = "auto",
    workers: Workers = None,
    skip_bad: SkipBad = False,
) -> None:
    """Train a classifier, evaluate it, and leave everything in a folder."""
    from wcdas.api import train as train_run

    run = train_run(
        data,
        method,
        recipe=recipe,
        settings=settings or [],
        seed=seed,
        out=out,
        resume=resume,
        device=device,
        workers=workers,
        skip_bad=skip_bad,
        console=console,
    )
    if int(os.environ.get("RANK", "0")) == 0:
        console.print(f"\n{run.table()}\n\n{run.path}")


@app.command(
    epilog="Examples: wcdas evaluate runs/digits-lt-softmax-s0-1 --logit-adjustment 1 · "
    "wcdas evaluate RUN --prior uniform"
)
def evaluate(
    run: Run,
    data: OtherData = None,
    settings: Set = None,
    prior: Annotated[
        str | None, typer.Option(help="uniform, train, or a file: the class mix to predict for.")
    ] = None,
    logit_adjustment: Annotated[float, typer.Option(help="τ of z − τ log π; 0 is off.")] = 0.0,
    tau_norm: Annotated[float, typer.Option(help="τ of w/‖w‖^τ, linear heads; 0 is off.")] = 0.0,
    max_norm: Annotated[float, typer.Option(help="Largest ‖w‖, linear heads; 0 is off.")] = 0.0,
    temperature: Annotated[float, typer.Option(help="Instead of the fitted one.")] = 0.0,
    per_class: Annotated[bool, typer.Option("--per-class", help="A line for every class.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All metrics as JSON.")] = False,
    device: Device = "auto",
    workers: Workers = 0,
    skip_bad: SkipBad = False,
) -> None:
    """Measure a trained run: many/medium/few, per class, calibration; post-hoc corrections."""
    from wcdas.deploy import Correction, evaluate_run
    from wcdas.evaluation import class_table, result_table

    correction = Correction(prior, logit_adjustment, tau_norm, max_norm, temperature)
    options = _data_options(settings) | {"skip_bad": skip_bad}
    metrics = evaluate_run(run, data, correction, device=device, workers=workers or 0, **options)
    if as_json:
        print(json.dumps(metrics))
        return
    console.print(result_table({metrics["method"]: metrics}))
    if metrics["ece"] is not None:
        console.print(
            f"calibration error {metrics['ece']:.3f}, macro F1 {metrics['macro_f1']:.3f}, "
            f"classes never predicted {metrics['never_predicted']}"
        )
    if per_class:
        console.print(class_table(metrics["per_class"]))


@app.command(epilog="Example: wcdas embed RUN ~/pictures --out features.parquet")
def embed(
    run: Run,
    data: Data = None,
    settings: Set = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("features.parquet"),
    device: Device = "auto",
    workers: Workers = 0,
    skip_bad: SkipBad = False,
) -> None:
    """Write a dataset's features to Parquet, which `wcdas train` reads as data."""
    from wcdas.deploy import embed as embed_data

    options = _data_options(settings) | {"skip_bad": skip_bad}
    count = embed_data(run, data, out, device=device, workers=workers or 0, **options)
    console.print(f"{count:,} feature vectors in {out}; train on them with: wcdas train {out}")


@app.command(name="list", epilog="Example: wcdas list methods")
def list_names(
    kind: Annotated[
        str, typer.Argument(help="methods, heads, losses, datasets, backbones, recipes.")
    ],
) -> None:
    """List what can be named on the command line."""
    from wcdas.listing import listing

    for line in listing(kind):
        console.print(line)


def _data_options(settings: list[str] | None) -> dict[str, Any]:
    from wcdas.recipes import parse_settings

    table = parse_settings(settings or [])
    for key in table:
        if key != "data":
            raise InputError(f"--set got {key!r}; expected data.… here, such as data.root=DIR")
    return dict(table.get("data", {}))


def _spread_settings(arguments: list[str]) -> list[str]:
    """`--set a=1 b=2` as `--set a=1 --set b=2`."""
    spread: list[str] = []
    inside = False
    for argument in arguments:
        if inside and "=" in argument and not argument.startswith("-"):
            if spread[-1] != "--set":
                spread.append("--set")
        else:
            inside = argument == "--set"
        spread.append(argument)
    return spread


def main() -> None:
    """Exit status: 0 done, 1 the work failed, 2 bad input, 130 stopped by the user."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        app(_spread_settings(sys.argv[1:]))
    except InputError as error:
        errors.print(f"wcdas: {error}")
        sys.exit(2)
    except (InterruptedRunError, KeyboardInterrupt) as stop:
        errors.print(f"wcdas: {stop or 'stopped'}")
        sys.exit(130)
    except WorkError as error:
        errors.print(f"wcdas: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
