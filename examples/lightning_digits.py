"""A LightningModule with a WCDAS head on the long-tailed digits; seconds on a CPU."""

import argparse

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import wcdas
from wcdas.data import ArrayImages, Split


class Digits(pl.LightningModule):
    """A small network whose last layer is a WCDAS head with the class prior in its loss."""

    log_prior: Tensor

    def __init__(self, class_counts: Tensor) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 64),
        )
        self.head = wcdas.WCDASHead(64, len(class_counts))
        self.register_buffer("log_prior", (class_counts / class_counts.sum()).log())

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.backbone(images))

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        loss = self.head.loss(self.backbone(images), labels, log_prior=self.log_prior)
        self.log("loss", loss)
        return loss

    def test_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        images, labels = batch
        self.log("accuracy", (self(images).argmax(dim=1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def loader(split: Split, batch_size: int, *, shuffle: bool) -> DataLoader[tuple[Tensor, ...]]:
    assert isinstance(split, ArrayImages)
    images = split.pixels.float() / 255
    return DataLoader(TensorDataset(images, split.labels), batch_size, shuffle=shuffle)


def main(epochs: int) -> float:
    """The accuracy on the test set, which is balanced."""
    pl.seed_everything(0, verbose=False)
    data = wcdas.open_dataset("digits-lt")
    model = Digits(data.class_counts)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, loader(data.train, 16, shuffle=True))
    (result,) = trainer.test(model, loader(data.test, 500, shuffle=False), verbose=False)
    print(f"accuracy after epoch {epochs}: {100 * result['accuracy']:.1f} %")
    return result["accuracy"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    main(parser.parse_args().epochs)
