"""The page and the figures people look at."""

from wcdas.report.write import report_on, write_report

__all__ = ["report_on", "write_report"]
