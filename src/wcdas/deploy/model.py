"""A trained model, ready to predict."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from wcdas.data.decode import open_image
from wcdas.data.resize import evaluation_square, to_pixels
from wcdas.errors import InputError
from wcdas.evaluation.posthoc import read_prior, shift_prior
from wcdas.training.distributed import choose_device
from wcdas.training.model_file import load_model


class Model:
    """A classifier with its class names, preprocessing, temperature and prior.

    Example:
        model = wcdas.load("runs/digits-lt-wcdas-s0-1")
        probabilities = model.predict(["a.png", "b.png"])
    """

    def __init__(self, path: Path, device: str = "auto") -> None:
        self.classifier, self.info = load_model(path)
        self.device = choose_device(device)
        self.classifier.to(self.device)

    @property
    def class_names(self) -> list[str]:
        return self.info.class_names

    def preprocess(self, image: str | Path | Image.Image) -> Tensor:
        """An image, or its file, as the classifier takes it: (channels, size, size)."""
        info = self.info
        picture = (
            image if isinstance(image, Image.Image) else open_image(Path(image), info.channels)
        )
        pixels = to_pixels(evaluation_square(picture, info.input_size)).float() / 255
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (info.mean, info.std))
        return (pixels - mean) / std

    @torch.no_grad()
    def logits(self, inputs: Tensor, prior: str | None = None) -> Tensor:
        """Calibrated logits of preprocessed inputs, under another class prior if one is given."""
        return self.calibrated(self.classifier(inputs.to(self.device)).cpu(), prior)

    def calibrated(self, logits: Tensor, prior: str | None, temperature: float = 0.0) -> Tensor:
        """Logits over the temperature, moved from the prior of training to another one."""
        logits = logits / (temperature or self.info.temperature)
        if prior is None:
            return logits
        if self.info.prior == "none":
            raise InputError(
                f"the model was trained by {self.info.method}, whose logits follow no known class "
                "prior, so another cannot be put in its place; leave the prior out"
            )
        counts, names = torch.tensor(self.info.class_counts), self.class_names
        trained = read_prior(self.info.prior, names, counts)
        return shift_prior(logits, trained, read_prior(prior, names, counts))

    def predict(
        self, images: Sequence[str | Path | Image.Image], prior: str | None = None, batch: int = 64
    ) -> Tensor:
        """The probability of every class for every image, (images, classes)."""
        parts = [
            self.logits(torch.stack([self.preprocess(i) for i in images[at : at + batch]]), prior)
            for at in range(0, len(images), batch)
        ]
        return torch.cat(parts).softmax(1) if parts else torch.zeros(0, len(self.class_names))


def load(run: str | Path, device: str = "auto") -> Model:
    """The model of a run's folder or of a model file."""
    path = Path(run)
    file = path / "model.safetensors" if path.is_dir() else path
    if not file.exists():
        raise InputError(f"{run} holds no trained model; expected a run's folder or its model file")
    return Model(file, device)
