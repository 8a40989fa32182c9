"""How the command line behaves: options, help pages, what is printed, exit statuses."""

import errno
import os
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from wcdas.errors import InputError, InterruptedRunError, WorkError
from wcdas.interrupt import Interrupt

if TYPE_CHECKING:
    from rich.console import Console

# What the parser raises for any bad command line.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
ALL_CORES_BUT_ONE = max(0, (os.cpu_count() or 1) - 1)


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Do a command and return its exit status: 0 done, 1 the work failed, 2 bad input, 128 and the
    number of the signal that stopped it. Whatever went wrong is said in one line."""
    for name in ("stdout", "stderr"):  # one that is closed swallows what is said
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    with Interrupt(raises=True) as interrupt:
        try:
            done = _do(app, spread_settings(arguments))
            sys.stdout.flush()
            return done
        except USAGE_ERROR as error:
            return _fail(_explain(error), 2)
        except InputError as error:
            return _fail(error, 2)
        except (InterruptedRunError, KeyboardInterrupt) as stop:
            return stopped(str(stop), getattr(stop, "number", interrupt.number))
        except BrokenPipeError:  # the reader, such as `head`, has seen enough
            _drop_output()
            return 1
        except WorkError as error:
            return _fail(error, 1)
        except Exception as error:
            if interrupt.requested:  # such as a connection that another process has ended first
                return stopped("", interrupt.number)
            if isinstance(error, OSError):
                return _fail(_of_the_system(error), 1)
            if "out of memory" not in str(error):
                raise
            return _fail("out of memory; go on with --device cpu, or free the device", 1)


def _do(app: typer.Typer, arguments: list[str]) -> int:
    """Do a command; `app(…)` would end Ctrl-C without a word."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("wcdas", arguments) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as done:
        return done.exit_code


def _of_the_system(error: OSError) -> str:
    """An error of the system in words that say what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        _drop_output()
        where = f"for {error.filename}" if error.filename else "where the output goes"
        return f"no space is left {where}; make room, or write elsewhere"
    where = f"{error.filename} cannot be used: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _drop_output() -> None:
    """Nobody takes what is left to print, and Python would try once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def spread_settings(arguments: list[str]) -> list[str]:
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


def _explain(error: Any) -> str:
    """A bad command line in one line, with the help that explains it."""
    if type(error) is typer.BadParameter and error.param is not None:
        return f"{error.param.opts[0]} is {error.message}"
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "wcdas"
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


def stopped(message: str, number: int) -> int:
    """Say how to go on, once where there are several processes, and return the exit status."""
    status = 128 + number
    if os.environ.get("RANK", "0") != "0":
        return status
    return _fail(message or "stopped; start it again with the same command", status)


def _fail(message: object, status: int) -> int:
    with suppress(OSError):  # the terminal may be gone
        print(f"wcdas: {' '.join(str(message).splitlines())}", file=sys.stderr)
    return status


class Command(TyperCommand):
    """A help page with arguments as the examples name them, without Python's types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]
        return [
            "[OPTIONS]",
            *(f"{p.metavar}" if p.required else f"[{p.metavar}]" for p in arguments),
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            kind, record = parameter.param_type_name, parameter.get_help_record(ctx)
            if record is not None:
                name = parameter.metavar if kind == "argument" else record[0]
                rows[kind].append((str(name), record[1]))
        for kind, found in rows.items():
            if found:
                with formatter.section(f"{kind.title()}s"):
                    formatter.write_dl(found)


def argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, help=text)


def option(metavar: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, **more)


def flag(name: str, text: str, **more: Any) -> Any:
    return typer.Option(name, help=text, **more)


def number(metavar: str, text: str) -> Any:
    return option(metavar, text, parser=_number)


def whole_number(metavar: str, text: str) -> Any:
    return option(metavar, text, parser=_whole_number)


def processes(text: str, **more: Any) -> Any:
    return option("N", text, parser=_count, **more)


def _number(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}; expected a number") from None


def _whole_number(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}; expected a whole number") from None


def _count(text: str | int) -> int:
    if (count := _whole_number(text)) < 0:
        raise typer.BadParameter(f"{count}; expected 0 (none) or more")
    return count


def console(stderr: bool = False) -> "Console":
    """Return where a command prints; the processes of torchrun but for the first are silent."""
    from rich.console import Console

    quiet, wide = os.environ.get("RANK", "0") != "0", width() is None
    return Console(
        stderr=stderr, soft_wrap=wide, highlight=False, markup=False, emoji=False, quiet=quiet
    )


def width() -> int | None:
    """Return the width of the terminal; a file or pipe has none to wrap at."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
