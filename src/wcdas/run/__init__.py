"""Stages, schedules, checkpoints: from a resolved configuration to a trained model."""

from wcdas.run.folder import RunFolder, check_free, next_folder
from wcdas.run.origin import source
from wcdas.run.recipes import read_recipe, read_settings
from wcdas.run.settings import read_own, remembered, resolve
from wcdas.run.spec import Config

__all__ = [
    "Config",
    "RunFolder",
    "check_free",
    "next_folder",
    "read_own",
    "read_recipe",
    "read_settings",
    "remembered",
    "resolve",
    "source",
]
