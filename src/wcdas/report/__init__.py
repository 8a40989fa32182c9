"""The page of a run, and the look of all figures."""

from wcdas.report.figures import COLOURS, DIVERGING, HATCHES, LINES, MARKERS, SEQUENTIAL, draw
from wcdas.report.write import report_on, write_report

__all__ = [
    "COLOURS",
    "DIVERGING",
    "HATCHES",
    "LINES",
    "MARKERS",
    "SEQUENTIAL",
    "draw",
    "report_on",
    "write_report",
]
