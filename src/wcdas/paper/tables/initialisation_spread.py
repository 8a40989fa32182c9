"""Do more epochs or a larger rate make the start of w_ρ matter less? By the paper's own numbers."""

from wcdas.paper.claim import Claim, Finding, Setting, Table, judge
from wcdas.paper.tables.printed import Cell, PrintedTable, read_table


def check(
    setting: Setting, slow: PrintedTable | None = None, fast: PrintedTable | None = None
) -> Finding:
    """`slow` is Table 6 (rate 0.2, 90 and 150 epochs), `fast` Table 2 (rate 0.4, 90 epochs)."""
    slow, fast = slow or read_table("table-6"), fast or read_table("table-2")
    starts = [row.label for row in slow.rows]
    short, long = (part.label for part in slow.parts)
    accuracy = {
        "rate 0.2, 90 epochs": [slow.numbers[Cell(s, short, "all")].mean for s in starts],
        "rate 0.2, 150 epochs": [slow.numbers[Cell(s, long, "all")].mean for s in starts],
        "rate 0.4, 90 epochs": [
            fast.numbers[Cell(s, fast.parts[0].label, "all")].mean for s in starts
        ],
    }
    spreads = {name: max(values) - min(values) for name, values in accuracy.items()}
    before, *after = spreads.values()
    smaller = [value < before for value in after]
    sentence = (
        f"Over the starts {', '.join(starts)} the accuracy of all classes spreads by "
        + ", ".join(f"{value:.1f} points at {name}" for name, value in spreads.items())
        + f": {sum(smaller)} of the two remedies makes it smaller."
    )
    rows = tuple(
        (name, *(f"{v:.1f}" for v in values), f"{spreads[name]:.1f}")
        for name, values in accuracy.items()
    )
    table = Table("All, in %, as printed", ("", *starts, "largest − smallest"), rows)
    numbers = {f"spread at {name}": value for name, value in spreads.items()}
    return Finding(judge(all(smaller), any(smaller)), sentence, numbers, tables=(table,))


CLAIMS = (
    Claim(
        "initialisation-spread",
        "Section 4.3, Tables 2 and 6",
        "The accuracy varies with the start of w_ρ, and more epochs or a larger rate mitigate it.",
        "a moment",
        check,
        "none: printed spreads are compared",
    ),
)
