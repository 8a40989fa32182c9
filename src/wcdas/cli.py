"""The command line: options, arguments and help; each command is one call."""

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from wcdas import __version__
from wcdas.usage import (
    ALL_CORES_BUT_ONE,
    Command,
    argument,
    console,
    flag,
    number,
    option,
    processes,
    run,
    whole_number,
    width,
)

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

Data = Annotated[
    str | None,
    argument(
        "DATA",
        "A dataset's name, a folder of class folders, a list file, Parquet, or .npy features.",
    ),
]
Run = Annotated[Path, argument("RUN", "A run's folder, or its model.safetensors.")]
Recipe = Annotated[str | None, option("NAME|FILE", "A shipped recipe, or a TOML file of your own.")]
Set = Annotated[list[str] | None, option("KEY=VALUE …", "Single values over the recipe.", "--set")]
DataSet = Annotated[
    list[str] | None, option("KEY=VALUE …", "Options of the data: data.root=DIR …", "--set")
]
Device = Annotated[str, option("NAME", "auto, cpu, cuda or cuda:N.")]
Workers = Annotated[
    int,
    processes("Processes that decode images.  [default: all cores but 1]", show_default=False),
]
Prior = Annotated[
    str | None,
    option("uniform|train|FILE", "The class mix to predict for; a file has lines `class,number`."),
]
Top = Annotated[int, whole_number("K", "How many classes.")]
Abstain = Annotated[float | None, number("P", "Say “unsure” below this probability.")]
Overwrite = Annotated[bool, flag("--overwrite", "Replace a file that is there.")]
SkipBad = Annotated[bool, flag("--skip-bad", "Leave unreadable images out.")]
Frozen = Annotated[
    bool,
    flag("--frozen", "Compute the backbone's features once, train what follows in seconds."),
]
Log = Annotated[
    list[str] | None, option("A,B", "tensorboard, wandb, mlflow or none.  [default: tensorboard]")
]
NoReport = Annotated[bool, flag("--no-report", "Write no page; `wcdas report` does it later.")]


def _version(asked: bool) -> None:
    if asked:
        print(f"wcdas {__version__}")
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    epilog="Begin with `wcdas train`, which needs no data, or `wcdas train FOLDER`.",
)
def start(
    context: typer.Context,
    version: Annotated[
        bool, flag("--version", "Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Image classification on long-tailed data."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@app.command(cls=Command)
def check(
    data: Annotated[str, argument("DATA", "What `wcdas train` would be given.")],
    settings: DataSet = None,
    skip_bad: SkipBad = False,
) -> None:
    """Show a dataset's tail, bad files and duplicates; trains nothing.

    \b
    Examples:
      wcdas check ~/pictures
      wcdas check cifar100-lt --set data.imbalance=50
    """
    from wcdas.api import check_data

    screen = console()
    with screen.status("reading the data"):
        for line in check_data(data, settings, skip_bad):
            screen.print(line)


@app.command(cls=Command, short_help="Train a classifier and evaluate it.")
def train(
    data: Data = None,
    method: Annotated[
        str | None, option("NAME", "See `wcdas list methods`.  [default: wcdas-prior]")
    ] = None,
    recipe: Recipe = None,
    frozen: Frozen = False,
    settings: Set = None,
    seed: Annotated[int | None, whole_number("N", "Of everything random.  [default: 0]")] = None,
    out: Annotated[
        Path | None, option("DIR", "The run's folder.  [default: runs/DATA-METHOD-sSEED-N]")
    ] = None,
    resume: Annotated[bool, flag("--resume", "Go on with the run in --out.")] = False,
    device: Device = "auto",
    workers: Workers = ALL_CORES_BUT_ONE,
    skip_bad: SkipBad = False,
    log: Log = None,
    no_report: NoReport = False,
) -> None:
    """Train a classifier, evaluate it, and leave everything in a folder.

    Without DATA it trains on handwritten digits that come with the package.

    \b
    Examples:
      wcdas train
      wcdas train ~/pictures --seed 1
      wcdas train ~/pictures --frozen --set views=8
      wcdas train cifar100-lt --set data.imbalance=50 epochs=100
      wcdas train --method softmax --set stages.representation.lr=0.05
      wcdas train --set teacher=RUN stages.representation.sam=0.05
      wcdas train --out runs/digits-lt-wcdas-prior-s0-1 --resume
      wcdas train --log tensorboard,wandb
    """
    from wcdas.api import train as train_run
    from wcdas.evaluation.table import metrics_text
    from wcdas.integrations import read_names

    screen = console()
    done = train_run(
        data,
        method,
        recipe=recipe,
        settings=[*(settings or []), *(["frozen=true"] if frozen else [])],
        seed=seed,
        out=out,
        resume=resume,
        device=device,
        workers=workers,
        skip_bad=skip_bad,
        callbacks=read_names(log or ["tensorboard"]),
        report=not no_report,
        console=screen,
    )
    screen.print(f"\n{done.table()}\n{metrics_text(done.metrics)}\n\n{done.path}")


@app.command(cls=Command, short_help="Train methods × seeds and compare them in one table.")
def sweep(
    data: Data = None,
    methods: Annotated[
        str | None, option("A,B,C", "Names of `wcdas list methods`.  [default: the recipe's]")
    ] = None,
    seeds: Annotated[int | None, whole_number("N", "How many, from 0 on.  [default: 3]")] = None,
    parallel: Annotated[
        int | None,
        whole_number("K", "Runs at a time.  [default: what fits on a GPU, 1 on a CPU]"),
    ] = None,
    ray: Annotated[
        str | None,
        option(
            "ADDRESS",
            "Spread the runs over a Ray cluster: HOST:PORT, auto, or local for all GPUs of this "
            "machine; then K is for each GPU.",
        ),
    ] = None,
    recipe: Recipe = None,
    frozen: Frozen = False,
    settings: Set = None,
    out: Annotated[
        Path | None, option("DIR", "The sweep's folder.  [default: runs/DATA-sweep-N]")
    ] = None,
    resume: Annotated[
        bool, flag("--resume", "Go on with the sweep in --out, or add to it.")
    ] = False,
    device: Device = "auto",
    workers: Annotated[
        int | None,
        processes("Processes that decode images for a run.  [default: all cores but 1, shared]"),
    ] = None,
    skip_bad: SkipBad = False,
    log: Log = None,
    no_report: NoReport = False,
) -> None:
    """Train every method with every seed under one protocol, and print one table.

    Rows are methods; columns are classes with many, medium and few training
    images, and all, as mean ± standard deviation over the seeds. A run that
    fails does not stop the others.

    \b
    Examples:
      wcdas sweep digits-lt --methods softmax,wcdas --seeds 3
      wcdas sweep ~/pictures --methods softmax,wcdas-prior --parallel 2
      wcdas sweep ~/pictures --methods softmax,wcdas-prior --frozen
      wcdas sweep cifar100-lt --methods wcdas,wcdas-meta --set epochs=100
      wcdas sweep --methods softmax,wcdas --log tensorboard,mlflow
      wcdas sweep ~/pictures --methods softmax,crt,wcdas-prior --ray local
      wcdas sweep /share/pictures --methods softmax,crt --ray 10.0.0.1:6379
      wcdas sweep --out runs/digits-lt-sweep-1 --resume
      wcdas sweep --out runs/digits-lt-sweep-1 --resume --methods wcdas-meta
    """
    from wcdas.api import sweep as run_sweep
    from wcdas.integrations import read_names

    screen = console()
    done = run_sweep(
        data,
        methods,
        seeds,
        parallel=parallel,
        recipe=recipe,
        settings=[*(settings or []), *(["frozen=true"] if frozen else [])],
        out=out,
        resume=resume,
        device=device,
        workers=workers,
        skip_bad=skip_bad,
        callbacks=read_names(log or ["tensorboard"]),
        report=not no_report,
        console=screen,
        ray=ray,
    )
    screen.print(f"\n{done.table()}\n\n{done.path}")
    done.raise_failures()


@app.command(cls=Command, name="results", short_help="Keep the numbers of finished runs in files.")
def keep(
    paths: Annotated[
        list[Path], argument("RUN|SWEEP|FILE …", "Folders, or .jsonl files from another machine.")
    ],
    to: Annotated[Path, option("DIR", "Where DATA.jsonl is, for each dataset.")] = Path("results"),
) -> None:
    """Keep the numbers of finished runs: a line each, in a file for each dataset.

    A line has settings, seed, metrics, time, device, versions and commit; that of
    an equal run is replaced. Runs that are not finished are told and left out,
    and the exit status is 1.

    \b
    Examples:
      wcdas results runs/digits-lt-sweep-1
      wcdas results runs/digits-lt-wcdas-prior-s0-1 --to numbers
      wcdas results cluster/results/cifar100-lt.jsonl
    """
    from wcdas.errors import WorkError
    from wcdas.sweeps import keep_results

    done = keep_results(paths, to)
    console().print("\n".join([*done.files, *(f"left out: {why}" for why in done.left_out)]))
    if done.left_out:
        raise WorkError(f"{len(done.left_out)} of {done.runs} runs are left out")


@app.command(cls=Command)
def evaluate(
    run: Run,
    data: Annotated[
        str | None, option("DATA", "Other data.  [default: the run's own]", "--data")
    ] = None,
    settings: DataSet = None,
    prior: Prior = None,
    logit_adjustment: Annotated[float | None, number("TAU", "z − τ log π after training.")] = None,
    tau_norm: Annotated[float | None, number("TAU", "w/‖w‖^τ, for a linear head.")] = None,
    max_norm: Annotated[float | None, number("NORM", "The largest ‖w‖, for a linear head.")] = None,
    temperature: Annotated[float | None, number("T", "Instead of the fitted one.")] = None,
    aggregate_experts: Annotated[
        bool,
        flag(
            "--aggregate-experts",
            "Weigh the experts of sade or ride on the test images, without their labels.",
        ),
    ] = False,
    per_class: Annotated[bool, flag("--per-class", "A line for every class.")] = False,
    as_json: Annotated[bool, flag("--json", "All metrics as JSON.")] = False,
    device: Device = "auto",
    workers: Workers = ALL_CORES_BUT_ONE,
    skip_bad: SkipBad = False,
) -> None:
    """Measure a trained run: many/medium/few, per class, calibration.

    \b
    Examples:
      wcdas evaluate runs/digits-lt-wcdas-prior-s0-1 --per-class
      wcdas evaluate RUN --data ~/other-pictures
      wcdas evaluate RUN --prior train
      wcdas evaluate RUN --logit-adjustment 1 --json
    """
    from wcdas.deploy import Correction, evaluate_run
    from wcdas.evaluation.table import evaluation_text
    from wcdas.run.recipes import data_settings

    correction = Correction(
        prior, logit_adjustment, tau_norm, max_norm, temperature, aggregate_experts
    )
    options = data_settings(settings)
    metrics = evaluate_run(
        run,
        data,
        correction,
        device=device,
        workers=workers,
        skip_bad=skip_bad,
        console=console(stderr=True),
        **options,
    )
    if as_json:
        print(json.dumps(metrics))
    else:
        console().print(evaluation_text(metrics, per_class))


@app.command(cls=Command, short_help="Say what is in images, with probabilities.")
def predict(
    run: Run,
    images: Annotated[list[str], argument("IMAGE …", "Files, folders, or patterns like '*.jpg'.")],
    top: Top = 3,
    prior: Prior = None,
    abstain: Abstain = None,
    form: Annotated[
        str | None, option("text|csv|jsonl", "[default: --out's, or text]", "--format")
    ] = None,
    out: Annotated[
        Path | None, option("FILE", "A .csv, .jsonl or .txt.  [default: the screen]")
    ] = None,
    overwrite: Overwrite = False,
    batch_size: Annotated[int, whole_number("N", "Images at a time.")] = 64,
    device: Device = "auto",
) -> None:
    """Say what is in images: the most probable classes, with their probabilities.

    A line for every image, in the order given. One that cannot be read is
    reported on its line, the rest goes on, and the exit status is 1.

    \b
    Examples:
      wcdas predict RUN photo.jpg
      wcdas predict RUN ~/photos --out answers.csv
      wcdas predict RUN 'photos/**/*.png' --top 1 --format jsonl
      wcdas predict RUN ~/photos --prior uniform --abstain 0.8
    """
    from wcdas.deploy.predicting import write_predictions

    written = write_predictions(
        run,
        images,
        form=form,
        out=out,
        top=top,
        prior=prior,
        abstain=abstain,
        batch_size=batch_size,
        device=device,
        overwrite=overwrite,
    )
    if out is not None:
        console().print(f"{out}, {written:,} image{'s' * (written != 1)}")


@app.command(
    cls=Command, short_help="Write a model as ONNX, torch.export, for the Hub, or its card."
)
def export(
    run: Run,
    form: Annotated[str, option("onnx|torch|hub|card", "What to write.", "--format")] = "onnx",
    out: Annotated[
        Path | None, option("PATH", "The file or folder.  [default: beside the model]")
    ] = None,
    overwrite: Overwrite = False,
    top: Annotated[
        int | None,
        whole_number("K", "Only the K most probable classes.  [default: all logits]"),
    ] = None,
    prior: Prior = None,
) -> None:
    """Write a model for other programs, checked against PyTorch on real images.

    onnx and torch give logits and probabilities, with --top the most probable
    classes alone, and hold class names and preprocessing; hub is a folder for
    huggingface_hub and timm; card is the model card alone.

    \b
    Examples:
      wcdas export RUN
      wcdas export RUN --format torch --out model.pt2
      wcdas export RUN --prior uniform --overwrite
      wcdas export RUN --top 5 --out top5.onnx
      wcdas export RUN --format hub --out my-model
    """
    from wcdas.deploy import export as export_run

    with console().status("exporting"):
        done = export_run(run, form, out, top=top, prior=prior, overwrite=overwrite)
    agrees = "" if done.difference is None else f", agrees with PyTorch to {done.difference:.0e}"
    console().print(f"{done.path}{agrees}")


@app.command(cls=Command, short_help="Open a page on this machine where images are dropped.")
def serve(
    run: Run,
    port: Annotated[int, whole_number("N", "0 takes a free one.")] = 8000,
    top: Top = 5,
    prior: Prior = None,
    abstain: Abstain = None,
    limit: Annotated[float, number("MB", "The largest file.")] = 20,
    device: Device = "auto",
) -> None:
    """Serve a page and a JSON endpoint for images, on this machine alone.

    \b
    Examples:
      wcdas serve RUN
      wcdas serve RUN --port 8080 --abstain 0.8
      curl --data-binary @photo.jpg http://127.0.0.1:8000/predict
    """
    from wcdas.deploy import serve as serve_run

    serve_run(
        run,
        port,
        top=top,
        prior=prior,
        abstain=abstain,
        limit=limit,
        device=device,
        announce=lambda address: print(f"{address} (stop with Ctrl-C)", flush=True),
    )
    os._exit(0)  # a thread that still looks at an image is not waited for


@app.command(cls=Command, short_help="Write the page of a run, or compare runs on one page.")
def report(
    runs: Annotated[list[Path], argument("RUN …", "Folders of finished runs.")],
    out: Annotated[
        Path | None,
        option("DIR", "Page and figures.  [default: the run's folder; of several, runs/report-N]"),
    ] = None,
    overwrite: Annotated[bool, flag("--overwrite", "Replace a page that is in --out.")] = False,
    figures: Annotated[
        bool, flag("--figures", "Write the charts as PNG and SVG files too, in figures/.")
    ] = False,
    open_page: Annotated[bool, flag("--open", "Open it in the browser.")] = False,
) -> None:
    """Write report.html; of several runs, one page that compares them.

    \b
    Examples:
      wcdas report runs/digits-lt-wcdas-prior-s0-1 --open
      wcdas report runs/digits-lt-softmax-s0-1 runs/digits-lt-wcdas-prior-s0-1
    """
    from wcdas.report import write_report

    with console().status("writing the report"):
        page = write_report(*runs, out=out, overwrite=overwrite, figures=figures)
    console().print(str(page))
    if open_page:
        typer.launch(str(page))


@app.command(cls=Command, short_help="Write a dataset's features, to train on or to look at.")
def embed(
    run: Annotated[
        Path,
        argument(
            "RUN|BACKBONE",
            "A run's folder, its model.safetensors, or the name of a backbone with its pretrained "
            "weights.",
        ),
    ],
    data: Data = None,
    settings: Annotated[
        list[str] | None,
        option("KEY=VALUE …", "data.root=DIR …; backbone.weights=FILE, input_size=N.", "--set"),
    ] = None,
    out: Annotated[Path, option("FILE", "The Parquet file to write.")] = Path("features.parquet"),
    overwrite: Overwrite = False,
    device: Device = "auto",
    workers: Workers = ALL_CORES_BUT_ONE,
    skip_bad: SkipBad = False,
) -> None:
    """Write a dataset's features to Parquet, which `wcdas train` reads as data.

    \b
    Examples:
      wcdas embed runs/digits-lt-wcdas-prior-s0-1
      wcdas embed RUN ~/pictures --out features.parquet
      wcdas embed tf_efficientnet_lite0 ~/pictures --set input_size=160
      wcdas train features.parquet
    """
    from wcdas.deploy import embed as embed_data

    screen = console()
    written = embed_data(
        run,
        data,
        out,
        settings=settings,
        device=device,
        workers=workers,
        skip_bad=skip_bad,
        overwrite=overwrite,
        console=screen,
    )
    screen.print(f"{written:,} feature vectors in {out}; train on them with: wcdas train {out}")


@app.command(cls=Command, short_help="Compute the paper's claims, figures and tables again.")
def paper(
    names: Annotated[
        list[str] | None, argument("NAME …", "Claims; without names they are listed.")
    ] = None,
    everything: Annotated[bool, flag("--all", "All of them.")] = False,
    out: Annotated[
        Path | None, option("DIR", "Page, figures and runs.  [default: runs/paper-N]")
    ] = None,
    resume: Annotated[
        bool, flag("--resume", "Go on with --out; what is judged there is kept.")
    ] = False,
    mode: Annotated[
        str, option("quick|real", "A small network on the digits, or the paper's.")
    ] = "quick",
    data_root: Annotated[
        Path | None, option("DIR", "The paper's datasets.  [default: $WCDAS_DATA]")
    ] = None,
    device: Device = "auto",
    measured: Annotated[
        Path | None, option("DIR", "A folder of --mode real; quick mode shows its numbers.")
    ] = None,
    results: Annotated[
        Path | None,
        option("DIR", "Of `wcdas results`; shown likewise.  [default: ./results, if there]"),
    ] = None,
    runs: Annotated[
        list[Path] | None,
        option("DIR", "Runs of your own, for label-awareness; may be given several times."),
    ] = None,
) -> None:
    """Check the paper's equations, theorems, figures and tables.

    Each ends in a verdict: holds, holds with a correction, refuted as stated, or
    needs data that is not here. One page shows them all.

    \b
    Examples:
      wcdas paper
      wcdas paper theorem-4 figure-2
      wcdas paper --all --out paper
      wcdas paper --out paper --resume
      wcdas paper label-awareness --runs runs
      wcdas paper --all --mode real --data-root ~/data --device cuda
    """
    from wcdas.paper.run import list_claims, run_paper, show

    if not names and not everything and not resume:
        print("\n".join(list_claims(width())))
        return
    screen = console()
    done = run_paper(
        names or [],
        everything=everything,
        out=out,
        resume=resume,
        mode=mode,
        data_root=data_root,
        device=device,
        measured=measured,
        results=results,
        runs=runs or [],
        console=screen,
    )
    if not everything and not resume:
        show(done, screen)
    screen.print(f"\n{done.counts}\n\n{done.page}")
    done.raise_failures()


@app.command(cls=Command, name="list")
def list_names(
    kind: Annotated[
        str,
        argument(
            "KIND",
            "methods, heads, losses, datasets, backbones, necks, recipes, samplers or "
            "augmentations.",
        ),
    ],
) -> None:
    """List what can be named on the command line.

    \b
    Examples:
      wcdas list methods
      wcdas list recipes
    """
    from wcdas.listing import listing

    print("\n".join(listing(kind, width())))


def main() -> None:
    # What PIL thinks of a photograph's metadata is not for the user; a bad image is an error.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    sys.exit(run(app, sys.argv[1:]))


if __name__ == "__main__":
    main()
