"""Stages, schedules, checkpoints: from a resolved configuration to a trained model."""

from wcdas.run.folder import RunFolder, check_free, next_folder
from wcdas.run.recipes import read_recipe
from wcdas.run.settings import resolve
from wcdas.run.spec import Config

__all__ = ["Config", "RunFolder", "check_free", "next_folder", "read_recipe", "resolve"]
