"""Loggers of other projects, by name."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from wcdas.errors import InputError, unknown
from wcdas.integrations.loggers import MLflow, TensorBoard, Wandb
from wcdas.run.callbacks import Callback

__all__ = ["LOGGERS", "MLflow", "TensorBoard", "Wandb", "create_callbacks", "read_names"]

LOGGERS: dict[str, Callable[[], Callback]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": MLflow,
}


def create_callbacks(callbacks: Sequence[str | Callback]) -> list[Callback]:
    """Names of `LOGGERS` as callbacks; callbacks as they are."""
    if isinstance(callbacks, str):
        raise InputError(f"callbacks is {callbacks!r}; expected a list, such as [{callbacks!r}]")
    return [_create(callback) for callback in callbacks]


def read_names(given: Sequence[str]) -> list[str]:
    """The names of `--log a,b --log c`, each once; `none` stands alone."""
    names = [name.strip() for part in given for name in part.split(",")]
    if "none" in names and len(names) > 1:
        raise InputError(f"--log {','.join(names)}: none goes with no other; leave one out")
    return [] if names == ["none"] else list(dict.fromkeys(names))


def _create(callback: str | Callback) -> Callback:
    if isinstance(callback, Callback):
        return callback
    if not isinstance(callback, str):
        raise InputError(
            f"callbacks holds {callback!r}; expected a wcdas.Callback or one of "
            f"{', '.join(LOGGERS)}"
        )
    if callback not in LOGGERS:
        raise unknown("logger", callback, list(LOGGERS))
    if find_spec(callback) is None:
        raise InputError(
            f"{callback} is not installed; run `pip install {callback}`, or log without it"
        )
    return LOGGERS[callback]()
