"""The command line; it parses, calls and prints."""

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wcdas import __version__
from wcdas.errors import InputError, InterruptedRunError, WorkError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
# What the parser raises for any bad command line.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]

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
    typer.Option(metavar="N", help="Processes that decode images.  [default: all cores but 1]"),
]
Prior = Annotated[
    str | None,
    typer.Option(
        metavar="uniform|train|FILE",
        help="The class mix to predict for; a file has lines `class,number`.",
    ),
]
Top = Annotated[int, typer.Option(metavar="K", help="How many classes.")]
Abstain = Annotated[
    float | None,
    typer.Option(metavar="P", help="Say “unsure” below this probability."),
]
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


@app.command()
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
        lines = list(check_data(data, settings or [], skip_bad))
    for line in lines:
        console.print(line)


@app.command(short_help="Train a classifier and evaluate it.")
def train(
    data: Data = None,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="See `wcdas list methods`.  [default: wcdas]"),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="A shipped recipe, or a TOML file of your own."),
    ] = None,
    settings: Set = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Of everything random.  [default: 0]")
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
      wcdas train --out runs/digits-lt-wcdas-s0-1 --resume
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


@app.command(short_help="Train methods × seeds and compare them in one table.")
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
        typer.Option(metavar="N", help="How many, from 0 on.  [default: 3]"),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(
            metavar="K", help="Runs at a time.  [default: what fits on a GPU, 1 on a CPU]"
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
      wcdas sweep ~/pictures --methods softmax,wcdas,wcdas-prior --parallel 2
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


@app.command()
def evaluate(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DATA", help="Other data.  [default: the run's own]"),
    ] = None,
    settings: DataSet = None,
    prior: Prior = None,
    logit_adjustment: Annotated[
        float | None, typer.Option(metavar="TAU", help="z − τ log π after training.")
    ] = None,
    tau_norm: Annotated[
        float | None, typer.Option(metavar="TAU", help="w/‖w‖^τ, for a linear head.")
    ] = None,
    max_norm: Annotated[
        float | None, typer.Option(metavar="NORM", help="The largest ‖w‖, for a linear head.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="Instead of the fitted one.")
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
      wcdas evaluate runs/digits-lt-wcdas-s0-1 --per-class
      wcdas evaluate RUN --data ~/other-pictures
      wcdas evaluate RUN --prior train
      wcdas evaluate RUN --logit-adjustment 1 --json
    """
    from wcdas.deploy import Correction, evaluate_run
    from wcdas.recipes.settings import data_options

    correction = Correction(
        prior, logit_adjustment, tau_norm, max_norm, temperature, aggregate_experts
    )
    options = data_options(settings or [])
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


@app.command(short_help="Say what is in pictures, with probabilities.")
def predict(
    run: Run,
    pictures: Annotated[
        list[str],
        typer.Argument(metavar="PICTURE …", help="Files, folders, or patterns like '*.jpg'."),
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
    batch_size: Annotated[int, typer.Option(metavar="N", help="Pictures at a time.")] = 64,
    device: Device = "auto",
) -> None:
    """Say what is in pictures: the most probable classes, with their probabilities.

    A line for every picture, in the order given. One that cannot be read is
    reported on its line, the rest goes on, and the exit status is 1.

    \b
    Examples:
      wcdas predict RUN photo.jpg
      wcdas predict RUN ~/photos --out answers.csv
      wcdas predict RUN 'photos/**/*.png' --top 1 --format jsonl
      wcdas predict RUN ~/photos --prior uniform --abstain 0.8
    """
    from wcdas.deploy.predict import write_predictions

    write_predictions(
        run,
        pictures,
        form=form,
        out=out,
        top=top,
        prior=prior,
        abstain=abstain,
        batch_size=batch_size,
        device=device,
    )


@app.command(short_help="Write a model as ONNX, torch.export, for the Hub, or its card.")
def export(
    run: Run,
    form: Annotated[
        str, typer.Option("--format", metavar="onnx|torch|hub|card", help="What to write.")
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The file or folder.  [default: beside the model]"),
    ] = None,
    prior: Prior = None,
) -> None:
    """Write a model for other programs, checked against PyTorch on real pictures.

    onnx and torch give logits and probabilities and hold class names and
    preprocessing; hub is a folder for huggingface_hub and timm; card is the
    model card alone.

    \b
    Examples:
      wcdas export RUN
      wcdas export RUN --format torch --out model.pt2
      wcdas export RUN --prior uniform
      wcdas export RUN --format hub --out my-model
    """
    from wcdas.deploy import export as export_run

    console = _console()
    with console.status("exporting"):
        done = export_run(run, form, out, prior=prior)
    agrees = "" if done.difference is None else f", agrees with PyTorch to {done.difference:.0e}"
    console.print(f"{done.path}{agrees}")


@app.command(short_help="Open a page on this machine where pictures are dropped.")
def serve(
    run: Run,
    port: Annotated[int, typer.Option(metavar="N", help="0 takes a free one.")] = 8000,
    top: Top = 5,
    prior: Prior = None,
    abstain: Abstain = None,
    limit: Annotated[float, typer.Option(metavar="MB", help="The largest file.")] = 20,
    device: Device = "auto",
) -> None:
    """Serve a page and a JSON endpoint for pictures, on this machine alone.

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


@app.command(short_help="Write the page of a run, or compare runs on one page.")
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN …", help="Folders of finished runs.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Page and figures.  [default: the run's folder; of several, runs/report-N]",
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write report.html and figures/; of several runs, one page that compares them.

    \b
    Examples:
      wcdas report runs/digits-lt-wcdas-s0-1 --open
      wcdas report runs/digits-lt-softmax-s0-1 runs/digits-lt-wcdas-s0-1
    """
    from wcdas.report import write_report

    console = _console()
    with console.status("writing the report"):
        page = write_report(*runs, out=out)
    console.print(str(page))
    if open_page:
        typer.launch(str(page))


@app.command(short_help="Write a dataset's features, to train on or to look at.")
def embed(
    run: Run,
    data: Data = None,
    settings: DataSet = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The Parquet file to write.")] = Path(
        "features.parquet"
    ),
    device: Device = "auto",
    workers: Workers = None,
    skip_bad: SkipBad = False,
) -> None:
    """Write a dataset's features to Parquet, which `wcdas train` reads as data.

    \b
    Examples:
      wcdas embed runs/digits-lt-wcdas-s0-1
      wcdas embed RUN ~/pictures --out features.parquet
      wcdas train features.parquet
    """
    from wcdas.deploy import embed as embed_data
    from wcdas.recipes.settings import data_options

    options = data_options(settings or [])
    console = _console()
    with console.status("computing features"):
        count = embed_data(
            run,
            data,
            out,
            device=device,
            workers=_workers(workers),
            skip_bad=skip_bad,
            **options,
        )
    console.print(f"{count:,} feature vectors in {out}; train on them with: wcdas train {out}")


@app.command(short_help="Compute the paper's claims, figures and tables again.")
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
        print("\n".join(list_claims()))
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


@app.command(name="list")
def list_names(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="methods, heads, losses, datasets, backbones, recipes, samplers or augmentations.",
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

    for line in listing(kind):
        print(line)


def _console() -> "Console":
    from rich.console import Console

    whole_lines = not sys.stdout.isatty()  # a file or pipe has no width to wrap at
    return Console(soft_wrap=whole_lines, highlight=False, markup=False, emoji=False)


def _workers(given: int | None) -> int:
    if given is not None and given < 0:
        raise InputError(f"--workers is {given}; expected 0 (none) or more")
    return max(0, (os.cpu_count() or 1) - 1) if given is None else given


def _facts(metrics: dict[str, Any]) -> str:
    """The metrics that the table by groups does not show, in two lines."""
    if not metrics["test_images"]:
        return "no test samples"
    from wcdas.evaluation.table import percent

    fitted = metrics.get("held_out") != 0
    temperature = f"temperature {metrics['temperature']:.2f}" if fitted else "no temperature fitted"
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
        return _fail(_usage(error), 2)
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


def _usage(error: Any) -> str:
    """A bad command line in one line, with the help that explains it."""
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "wcdas"
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


def _fail(message: object, status: int) -> int:
    print(f"wcdas: {' '.join(str(message).splitlines())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
