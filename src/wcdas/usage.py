"""How the command line explains itself: help pages, and bad command lines in one line."""

from typing import Any

import typer
from typer.core import TyperCommand

# What the parser raises for any bad command line.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


class Command(TyperCommand):
    """A help page with arguments as the examples name them, without Python's types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]
        names = [p.metavar if p.required else f"[{p.metavar}]" for p in arguments]
        return ["[OPTIONS]", *map(str, names)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            rows = []
            for parameter in self.get_params(ctx):
                record = parameter.get_help_record(ctx)
                if parameter.param_type_name == kind and record is not None:
                    name, text = record
                    rows.append((parameter.metavar if kind == "argument" else name, text))
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def whole_number(text: str | int) -> int:
    """The value of an option, or what is wrong with it."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}; expected a whole number") from None


def number(text: str | float) -> float:
    """The value of an option, or what is wrong with it."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r}; expected a number") from None


def explain(error: Any) -> str:
    """A bad command line in one line, with the help that explains it."""
    if type(error) is typer.BadParameter and error.param is not None:
        return f"{error.param.opts[0]} is {error.message}"
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "wcdas"
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"
