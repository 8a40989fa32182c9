"""What went wrong, for the person who asked."""


class InputError(ValueError):
    """Bad input, refused before any work: one line that names it, what was expected, what to do."""


class WorkError(RuntimeError):
    """The work failed; what was done is kept. One line that says where and what to do."""


class InterruptedRunError(WorkError):
    """The user stopped the run; a checkpoint was written."""
