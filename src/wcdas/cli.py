"""The command line; it parses, calls and prints."""

import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wcdas import __version__
from wcdas.errors import InputError, InterruptedRunError, WorkError
from wcdas.usage import USAGE_ERROR, Command, explain, number, whole_number

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

Data = Annotated[
    str | None,
    typer.Argument(
        metavar="DATA",
        help="A dataset's name, a folder of class folders, a list file, Parquet, or .npy features.",
    ),
]
Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder, or its model.safetensors.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE …", help="Single values over the recipe."),
]
DataSet = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE …", help="Options of the data: data.root=DIR …"),
]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.")]
Workers = Annotated[
    int | None,
    typer.Option(
        parser=whole_number,
        metavar="N",
        help="Processes that decode images.  [default: all cores but 1]",
    ),
]
Prior = Annotated[
    str | None,
    typer.Option(
        metavar="uniform|train|FILE",
        help="The class mix to predict for; a file has lines `class,number`.",
    ),
]
Top = Annotated[int, typer.Option(parser=whole_number, metavar="K", help="How many classes.")]
Abstain = Annotated[
    float | None,
    typer.Option(parser=number, metavar="P", help="Say “unsure” below this probability."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable images out.")]
Log = Annotated[
    list[str] | None,
    typer.Option(metavar="A,B", help="tensorboard, wandb, mlflow or none.  [default: tensorboard]"),
]
NoReport = Annotated[
    bool, typer.Option("--no-report", help="Write no page; `wcdas report` does it later.")
]


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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Image classification on long-tailed data."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@app.command(cls=Command)
def check(
    data: Annotated[str, typer.Argument(metavar="DATA", help="What `wcdas train` would be given.")],
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

    console = _console()
    with console.status("reading the data"):
        for line in check_data(data, settings or [], skip_bad):
            console.print(line)


@app.command(cls=Command, short_help="Train a classifier and evaluate it.")
def train(
    data: Data = None,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="See `wcdas list methods`.  [default: wcdas-prior]"),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="A shipped recipe, or a TOML file of your own."),
    ] = None,
    settings: Set = None,
    seed: Annotated[
        int | None,
        typer.Option(parser=whole_number, metavar="N", help="Of everything random.  [default: 0]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The run's folder.  [default: runs/DATA-METHOD-sSEED-N]"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    device: Device = "auto",
    workers: Workers = None,
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
      wcdas train cifar100-lt --set data.imbalance=50 epochs=100
      wcdas train --method softmax --set stages.representation.lr=0.05
      wcdas train --out runs/digits-lt-wcdas-prior-s0-1 --resume
      wcdas train --log tensorboard,wandb
    """
    from wcdas.api import train as train_run
    from wcdas.integrations import read_names

    console = _console()
    run = train_run(
        data,
        method,
        recipe=recipe,
        settings=settings or [],
        seed=seed,
        out=out,
        resume=resume,
        device=device,
        workers=_workers(workers),
        skip_bad=skip_bad,
        callbacks=read_names(log or ["tensorboard"]),
        report=not no_report,
        console=console,
    )
    if int(os.environ.get("RANK", "0")) == 0:
        console.print(f"\n{run.table()}\n{_facts(run.metrics)}\n\n{run.path}")


@app.command(cls=Command, short_help="Train methods × seeds and compare them in one table.")
def sweep(
    data: Data = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C", help="Names of `wcdas list methods`.  [default: the recipe's]"
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(parser=whole_number, metavar="N", help="How many, from 0 on.  [default: 3]"),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="K",
            help="Runs at a time.  [default: what fits on a GPU, 1 on a CPU]",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="A shipped recipe, or a TOML file of your own."),
    ] = None,
    settings: Set = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The sweep's folder.  [default: runs/DATA-sweep-N]"),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the sweep in --out, or add to it."),
    ] = False,
    device: Device = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="N",
            help="Processes that decode images for a run.  [default: all cores but 1, shared]",
        ),
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
      wcdas sweep cifar100-lt --methods wcdas,wcdas-meta --set epochs=100
      wcdas sweep --methods softmax,wcdas --log tensorboard,mlflow
      wcdas sweep --out runs/digits-lt-sweep-1 --resume
      wcdas sweep --out runs/digits-lt-sweep-1 --resume --methods wcdas-meta
    """
    from wcdas.api import sweep as run_sweep
    from wcdas.integrations import read_names

    console = _console()
    done = run_sweep(
        data,
        methods,
        seeds,
        parallel=parallel,
        recipe=recipe,
        settings=settings or [],
        out=out,
        resume=resume,
        device=device,
        workers=None if workers is None else _workers(workers),
        skip_bad=skip_bad,
        callbacks=read_names(log or ["tensorboard"]),
        report=not no_report,
        console=console,
    )
    console.print(f"\n{done.table()}\n\n{done.path}")
    done.raise_failures()


@app.command(cls=Command)
def evaluate(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DATA", help="Other data.  [default: the run's own]"),
    ] = None,
    settings: DataSet = None,
    prior: Prior = None,
    logit_adjustment: Annotated[
        float | None, typer.Option(parser=number, metavar="TAU", help="z − τ log π after training.")
    ] = None,
    tau_norm: Annotated[
        float | None, typer.Option(parser=number, metavar="TAU", help="w/‖w‖^τ, for a linear head.")
    ] = None,
    max_norm: Annotated[
        float | None,
        typer.Option(parser=number, metavar="NORM", help="The largest ‖w‖, for a linear head."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(parser=number, metavar="T", help="Instead of the fitted one.")
    ] = None,
    aggregate_experts: Annotated[
        bool,
        typer.Option(
            "--aggregate-experts",
            help="Weigh the experts of sade or ride on the test images, without their labels.",
        ),
    ] = False,
    per_class: Annotated[bool, typer.Option("--per-class", help="A line for every class.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All metrics as JSON.")] = False,
    device: Device = "auto",
    workers: Workers = None,
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
    from wcdas.run.recipes import data_settings

    correction = Correction(
        prior, logit_adjustment, tau_norm, max_norm, temperature, aggregate_experts
    )
    options = data_settings(settings or [])
    console = _console()
    with console.status("evaluating"):
        metrics = evaluate_run(
            run,
            data,
            correction,
            device=device,
            workers=_workers(workers),
            skip_bad=skip_bad,
            **options,
        )
    if as_json:
        import json

        print(json.dumps(metrics))
        return
    from wcdas.evaluation import class_table, result_table

    name = metrics["method"]
    console.print(f"{metrics['dataset']}: {metrics['test_images']:,} test samples")
    if weights := metrics.get("expert_weights"):
        name += ", experts weighed on the test images"
        console.print(f"weights of the experts: {', '.join(f'{w:.2f}' for w in weights)}")
    console.print(f"{result_table({name: metrics})}\n{_facts(metrics)}")
    if per_class:
        console.print(f"\n{class_table(metrics['per_class'])}")


@app.command(cls=Command, short_help="Say what is in images, with probabilities.")
def predict(
    run: Run,
    pictures: Annotated[
        list[str],
        typer.Argument(metavar="IMAGE …", help="Files, folders, or patterns like '*.jpg'."),
    ],
    top: Top = 3,
    prior: Prior = None,
    abstain: Abstain = None,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="text|csv|jsonl", help="[default: --out's, or text]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .csv, .jsonl or .txt.  [default: the screen]"),
    ] = None,
    overwrite: Overwrite = False,
    batch_size: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Images at a time.")
    ] = 64,
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

    count = write_predictions(
        run,
        pictures,
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
        _console().print(f"{out}, {count:,} image{'s' * (count != 1)}")


@app.command(
    cls=Command, short_help="Write a model as ONNX, torch.export, for the Hub, or its card."
)
def export(
    run: Run,
    form: Annotated[
        str, typer.Option("--format", metavar="onnx|torch|hub|card", help="What to write.")
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The file or folder.  [default: beside the model]"),
    ] = None,
    overwrite: Overwrite = False,
    prior: Prior = None,
) -> None:
    """Write a model for other programs, checked against PyTorch on real images.

    onnx and torch give logits and probabilities and hold class names and
    preprocessing; hub is a folder for huggingface_hub and timm; card is the
    model card alone.

    \b
    Examples:
      wcdas export RUN
      wcdas export RUN --format torch --out model.pt2
      wcdas export RUN --prior uniform --overwrite
      wcdas export RUN --format hub --out my-model
    """
    from wcdas.deploy import export as export_run

    console = _console()
    with console.status("exporting"):
        done = export_run(run, form, out, prior=prior, overwrite=overwrite)
    agrees = "" if done.difference is None else f", agrees with PyTorch to {done.difference:.0e}"
    console.print(f"{done.path}{agrees}")


@app.command(cls=Command, short_help="Open a page on this machine where images are dropped.")
def serve(
    run: Run,
    port: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="0 takes a free one.")
    ] = 8000,
    top: Top = 5,
    prior: Prior = None,
    abstain: Abstain = None,
    limit: Annotated[
        float, typer.Option(parser=number, metavar="MB", help="The largest file.")
    ] = 20,
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

    def announce(address: str) -> None:
        print(f"{address} (stop with Ctrl-C)", flush=True)

    serve_run(
        run,
        port,
        top=top,
        prior=prior,
        abstain=abstain,
        limit=limit,
        device=device,
        announce=announce,
    )


@app.command(cls=Command, short_help="Write the page of a run, or compare runs on one page.")
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN …", help="Folders of finished runs.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Page and figures.  [default: the run's folder; of several, runs/report-N]",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a page that is in --out.")
    ] = False,
    figures: Annotated[
        bool,
        typer.Option("--figures", help="Write the charts as PNG and SVG files too, in figures/."),
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write report.html; of several runs, one page that compares them.

    \b
    Examples:
      wcdas report runs/digits-lt-wcdas-prior-s0-1 --open
      wcdas report runs/digits-lt-softmax-s0-1 runs/digits-lt-wcdas-prior-s0-1
    """
    from wcdas.report import write_report

    console = _console()
    with console.status("writing the report"):
        page = write_report(*runs, out=out, overwrite=overwrite, figures=figures)
    console.print(str(page))
    if open_page:
        typer.launch(str(page))


@app.command(cls=Command, short_help="Write a dataset's features, to train on or to look at.")
def embed(
    run: Run,
    data: Data = None,
    settings: DataSet = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The Parquet file to write.")] = Path(
        "features.parquet"
    ),
    overwrite: Overwrite = False,
    device: Device = "auto",
    workers: Workers = None,
    skip_bad: SkipBad = False,
) -> None:
    """Write a dataset's features to Parquet, which `wcdas train` reads as data.

    \b
    Examples:
      wcdas embed runs/digits-lt-wcdas-prior-s0-1
      wcdas embed RUN ~/pictures --out features.parquet
      wcdas train features.parquet
    """
    from wcdas.deploy import embed as embed_data
    from wcdas.run.recipes import data_settings

    options = data_settings(settings or [])
    console = _console()
    with console.status("computing features"):
        count = embed_data(
            run,
            data,
            out,
            device=device,
            workers=_workers(workers),
            skip_bad=skip_bad,
            overwrite=overwrite,
            **options,
        )
    console.print(f"{count:,} feature vectors in {out}; train on them with: wcdas train {out}")


@app.command(cls=Command, short_help="Compute the paper's claims, figures and tables again.")
def paper(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME …", help="Claims; without names they are listed."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Page, figures and runs.  [default: runs/paper-N]"),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with --out; what is judged there is kept."),
    ] = False,
    mode: Annotated[
        str,
        typer.Option(metavar="quick|real", help="A small network on the digits, or the paper's."),
    ] = "quick",
    data_root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The paper's datasets.  [default: $WCDAS_DATA]"),
    ] = None,
    device: Device = "auto",
    measured: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A folder of --mode real; quick mode shows its numbers."),
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
      wcdas paper --all --mode real --data-root ~/data --device cuda
    """
    from wcdas.paper.run import count, list_claims, run_paper, show

    if not names and not everything and not resume:
        print("\n".join(list_claims(_width())))
        return
    console = _console()
    done = run_paper(
        names or [],
        everything=everything,
        out=out,
        resume=resume,
        mode=mode,
        data_root=data_root,
        device=device,
        measured=measured,
        console=console,
    )
    if not everything and not resume:
        show(done, console)
    console.print(f"\n{count(done)}\n\n{done.page}")
    done.raise_failures()


@app.command(cls=Command, name="list")
def list_names(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="methods, heads, losses, datasets, backbones, necks, recipes, samplers or "
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

    print("\n".join(listing(kind, _width())))


def _console() -> "Console":
    from rich.console import Console

    return Console(soft_wrap=_width() is None, highlight=False, markup=False, emoji=False)


def _width() -> int | None:
    """Of the terminal; a file or pipe has none to wrap at."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _workers(given: int | None) -> int:
    if given is not None and given < 0:
        raise InputError(f"--workers is {given}; expected 0 (none) or more")
    return max(0, (os.cpu_count() or 1) - 1) if given is None else given


def _facts(metrics: dict[str, Any]) -> str:
    """The metrics that the table by groups does not show, in two lines."""
    if not metrics["test_images"]:
        return "no test samples"
    from wcdas.evaluation.table import percent

    temperature, held_out = f"temperature {metrics['temperature']:.2f}", metrics.get("held_out")
    if held_out is not None:
        on = f"{held_out:,} image{'s' * (held_out != 1)}"
        temperature = f"{temperature}, fitted on {on}" if held_out else "no temperature fitted"
    top5 = f"top-5 {percent(metrics['top5'])}, " if len(metrics["per_class"]) > 5 else ""
    return (
        f"top-1 {percent(metrics['top1'])}, {top5}balanced "
        f"{percent(metrics['balanced_accuracy'])}, macro F1 {percent(metrics['macro_f1'])}\n"
        f"calibration error {percent(metrics['ece'])} ({temperature}), "
        f"classes never predicted {metrics['never_predicted']}"
    )


def _spread_settings(arguments: list[str]) -> list[str]:
    """`--set a=1 b=2` as `--set a=1 --set b=2`."""
    spread: list[str] = []
    inside = False
    for argument in arguments:
        if inside and "=" in argument and not argument.startswith("-"):
            if spread[-1] != "--set":
                spread.append("--set")
        else:
            inside = argument == "--set" or argument.startswith("--set=")
        spread.append(argument)
    return spread


def main() -> None:
    """Exit status: 0 done, 1 the work failed, 2 bad input, 130 stopped by the user."""
    # What PIL thinks of a photograph's metadata is not for the user; a bad picture is an error.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    try:
        return int(app(_spread_settings(arguments), prog_name="wcdas", standalone_mode=False) or 0)
    except USAGE_ERROR as error:
        return _fail(explain(error), 2)
    except InputError as error:
        return _fail(error, 2)
    except (InterruptedRunError, KeyboardInterrupt, typer.Abort) as stop:
        return _fail(str(stop) or "stopped", 130)
    except WorkError as error:
        return _fail(error, 1)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(error, 1)
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        return _fail("out of memory; go on with --device cpu, or free the device", 1)


def _fail(message: object, status: int) -> int:
    print(f"wcdas: {' '.join(str(message).splitlines())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
