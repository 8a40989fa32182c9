"""A WCDAS head in a plain PyTorch loop: handwritten digits made long-tailed, beside softmax.

    python examples/digits.py

The paper's two stages are the whole network on the images as they come, then the classifier alone
on classes drawn equally often; a class prior in the loss needs one stage. A minute on two cores.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import wcdas

TEST_PER_CLASS, LARGEST, IMBALANCE = 50, 120, 50


def long_tailed_digits() -> tuple[TensorDataset, TensorDataset, Tensor]:
    """Train and test set and the training images per class, from 120 down to 2."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(digits.target).long()
    counts = torch.tensor([int(LARGEST * IMBALANCE ** (-c / 9)) for c in range(10)])
    of_class = [(labels == c).nonzero().flatten() for c in range(10)]
    train = torch.cat([rows[:n] for rows, n in zip(of_class, counts.tolist(), strict=True)])
    test = torch.cat([rows[-TEST_PER_CLASS:] for rows in of_class])
    pair = [TensorDataset(images[rows], labels[rows]) for rows in (train, test)]
    return pair[0], pair[1], counts


def backbone() -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = [*block(1, 32), *block(32, 32), nn.MaxPool2d(2), *block(32, 64)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def train(
    features: nn.Module,
    head: wcdas.Head,
    data: DataLoader[tuple[Tensor, ...]],
    epochs: int,
    log_prior: Tensor | None = None,
) -> None:
    parameters = [p for p in (*features.parameters(), *head.parameters()) if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.2, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for images, labels in data:
            loss = head.loss(features(images), labels, log_prior=log_prior)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


@torch.no_grad()
def accuracy_by_class(features: nn.Module, head: wcdas.Head, data: TensorDataset) -> Tensor:
    images, labels = data.tensors
    right = (head(features.eval()(images)).argmax(1) == labels).double()
    return torch.stack([right[labels == c].mean() for c in range(10)])


def main() -> None:
    train_set, test_set, counts = long_tailed_digits()
    instance_balanced = DataLoader(train_set, batch_size=32, shuffle=True, drop_last=True)
    draws = WeightedRandomSampler((1 / counts)[train_set.tensors[1]].tolist(), len(train_set))
    class_balanced = DataLoader(train_set, batch_size=32, sampler=draws, drop_last=True)
    many, few = counts > 100, counts < 20
    groups = {"many": many, "medium": ~many & ~few, "few": few, "all": counts > 0}

    print(f"training images per class: {counts.tolist()}; test: {TEST_PER_CLASS} each")
    print(f"{'top-1 accuracy in %':32}" + "".join(f"{name:>8}" for name in groups))
    for title in ("softmax", "WCDAS, two stages", "WCDAS, class prior in the loss"):
        torch.manual_seed(0)
        features = backbone()
        # A scale that starts at 10 instead of 1.7 makes up for the short training.
        head = (
            wcdas.LinearHead(64, 10)
            if title == "softmax"
            else wcdas.WCDASHead(64, 10, scale_init=10.0)
        )
        log_prior = counts.log() - counts.sum().log() if "prior" in title else None
        train(features, head, instance_balanced, epochs=60, log_prior=log_prior)
        if "two stages" in title:
            features.eval().requires_grad_(False)
            train(features, head, class_balanced, epochs=30)
        accuracy = accuracy_by_class(features, head, test_set)
        cells = (f"{100 * accuracy[group].mean():8.1f}" for group in groups.values())
        print(f"{title:32}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
