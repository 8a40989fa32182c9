"""Stages, schedules, checkpoints: from a resolved configuration to a trained model."""
