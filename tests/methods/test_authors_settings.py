"""Settings that are called the authors' are those of their public files, dataset by dataset."""

from typing import Any

import pytest

from wcdas.run.recipes import read_recipe
from wcdas.run.settings import resolve
from wcdas.run.spec import as_table, flat

MWN = "xjtushujun/Meta-weight-net_class-imbalance: meta-weight-net-class-imbalance.py"
RIDE = "frank-xwang/RIDE-LongTailRecognition: model/loss.py, configs/config_{}.json"
PACO = "dvlab-research/Parametric-Contrastive-Learning: PaCo/LT/sh/{}, PaCo/LT/{}"
PROCO = "LeapLabTHU/ProCo: sh/{}, {}/main.py, {}/models/{}"
BALPOE = "emasa/BalPoE-CalibratedLT: configs/mixup/long_training/config_{}_bs-experts.json"
BALMS = "jiawei-ren/BalancedMetaSoftmax-Classification: config/CIFAR100_LT/balms_imba200.yaml"
CLASS_BALANCED = "richardaecn/class-balanced-loss: tpu/run_inat2018.sh"
WCDAS = "boranhan/WCDAS_code: config/model_config.py, utils/ImbalanceCIFAR.py, main_finetune.py"

FIRST, SECOND = "stages.representation", "stages.classifier"
PACO_ON_CIFAR = {
    "options.alpha": 0.01,
    "options.beta": 1.0,
    "options.gamma": 1.0,
    "options.temperature": 0.05,
    "options.queue": 1024,
    "options.projection": 32,
    "options.momentum": 0.999,
    f"{FIRST}.lr": 0.05,
    f"{FIRST}.batch_size": 128,
    f"{FIRST}.warmup": 10,
    f"{FIRST}.epochs": 400,
    f"{FIRST}.schedule": "step",
    f"{FIRST}.milestones": [0.8, 0.9],  # 320 and 360
    f"{FIRST}.gamma": 0.1,
    f"{FIRST}.weight_decay": 5e-4,
}
PACO_ON_MANY = {
    "options.alpha": 0.05,
    "options.temperature": 0.2,
    "options.queue": 8192,
    "options.projection": 128,
}
PROCO_ON_CIFAR = {
    "options.temperature": 0.1,
    "options.weight": 1.0,  # alpha
    "options.hidden": 512,
    "options.projection": 128,
    "backbone.name": "resnet32",
    f"{FIRST}.prior": 1.0,
    f"{FIRST}.lr": 0.3,
    f"{FIRST}.batch_size": 256,
    f"{FIRST}.warmup": 5,
    f"{FIRST}.epochs": 200,
    f"{FIRST}.schedule": "step",
    f"{FIRST}.milestones": [0.8, 0.9],  # 160 and 180
    f"{FIRST}.gamma": 0.1,
    f"{FIRST}.momentum": 0.9,
    f"{FIRST}.nesterov": False,
    f"{FIRST}.weight_decay": 2e-4,
    f"{FIRST}.augment": "strong",
}
PROCO_ON_MANY = {"options.temperature": 0.07, "options.weight": 1.0, "options.projection": 1024}
BALPOE_ON_CIFAR = {
    "options.experts": 3,
    "options.width": 1.0,  # reduce_dimension: false
    f"{FIRST}.prior": 1.0,  # tau_list: 0, 1, 2
    "options.spread": 1.0,
    f"{FIRST}.augment": "auto-augment",  # randaugm: true, which is AutoAugment there
    f"{FIRST}.lr": 0.1,
    f"{FIRST}.batch_size": 128,
    f"{FIRST}.warmup": 10,
    f"{FIRST}.epochs": 400,
    f"{FIRST}.schedule": "step",
    f"{FIRST}.milestones": [0.8, 0.9],  # 320 and 360
    f"{FIRST}.gamma": 0.1,
    f"{FIRST}.momentum": 0.9,
    f"{FIRST}.nesterov": True,
    f"{FIRST}.weight_decay": 5e-4,
}
COSINE = {"head.name": "cosine", "head.scale": 30.0}  # use_norm: true
RIDE_ON_CIFAR = {
    "options.diversity": 0.45,  # additional_diversity_factor: −0.45, which is added there
    "options.temperature_slope": 0.05,
    "options.router_logits": 30,
    "options.positive_weight": 100.0,
    f"{FIRST}.nesterov": True,
    "augment.rotation": 15.0,
    "stages.routing.lr": 0.01,
    "stages.routing.batch_size": 512,
    "stages.routing.epochs": 5,
    "stages.routing.nesterov": True,
}


@pytest.mark.parametrize(
    ("method", "dataset", "source", "expected"),
    [
        (
            "meta-weight-net",
            "cifar100-lt",
            MWN,
            {
                "options.hidden": 100,
                "options.net_lr": 1e-5,
                "options.net_weight_decay": 5e-4,
                "selection.most": 10,
                "selection.smallest": 20,
                f"{FIRST}.second_sampler": "class-balanced",
            },
        ),
        ("ride", "cifar100-lt", RIDE.format("imbalance_cifar100_ride"), RIDE_ON_CIFAR),
        ("ride-wcdas", "cifar10-lt", "as ride", RIDE_ON_CIFAR),
        (
            "ride",
            "imagenet-lt",
            RIDE.format("imagenet_lt_resnet10_ride"),
            {
                "options.diversity": 0.2,
                "options.temperature_slope": 0.02,
                "options.router_logits": 30,
                f"{FIRST}.nesterov": True,
                "augment.rotation": 0.0,
            },
        ),
        (
            "ride",
            "inat2018",
            RIDE.format("iNaturalist_resnet50_ride"),
            {"options.temperature_slope": 0.015, "options.router_logits": 50},
        ),
        (
            "paco",
            "cifar100-lt",
            PACO.format("CIFAR100_train_imb0.01.sh", "paco_cifar.py"),
            PACO_ON_CIFAR,
        ),
        ("paco-wcdas", "cifar10-lt", "as paco", PACO_ON_CIFAR | {"head.scale_init": 20.0}),
        (
            "paco",
            "imagenet-lt",
            PACO.format("ImageNetLT_train_R50.sh", "paco_lt.py"),
            PACO_ON_MANY,
        ),
        ("paco", "inat2018", PACO.format("Inat_train_R50.sh", "paco_lt.py"), PACO_ON_MANY),
        ("paco-wcdas", "inat2018", "as paco", PACO_ON_MANY | {"head.scale_init": 1 / 0.2}),
        (
            "proco",
            "cifar100-lt",
            PROCO.format("ProCo_CIFAR.sh", "ProCo_cifar", "ProCo_cifar", "resnet_cifar.py"),
            PROCO_ON_CIFAR,
        ),
        ("proco-wcdas", "cifar10-lt", "as proco", PROCO_ON_CIFAR),
        (
            "proco",
            "imagenet-lt",
            PROCO.format("ProCo_ImageNetLT_R50_90epochs.sh", "ProCo", "ProCo", "resnext.py"),
            PROCO_ON_MANY | {"options.hidden": 512},  # as wide as the features
        ),
        (
            "proco-wcdas",
            "inat2018",
            PROCO.format("ProCo_inat_R50_90epochs.sh", "ProCo", "ProCo", "resnext.py"),
            PROCO_ON_MANY | {"options.hidden": 2048},
        ),
        (
            "balpoe",
            "cifar100-lt",
            BALPOE.format("cifar100_ir100"),
            BALPOE_ON_CIFAR | COSINE | {f"{FIRST}.mixup": 0.4},
        ),
        (
            "balpoe",
            "cifar10-lt",
            BALPOE.format("cifar10_ir100"),
            BALPOE_ON_CIFAR | COSINE | {f"{FIRST}.mixup": 0.8},
        ),
        ("balpoe-wcdas", "cifar100-lt", "as balpoe", BALPOE_ON_CIFAR | {f"{FIRST}.mixup": 0.4}),
        (
            "balpoe",
            "imagenet-lt",
            BALPOE.format("imagenet_lt_resnet50"),
            {f"{FIRST}.prior": 1.25, "options.spread": 1.25, f"{FIRST}.mixup": 0.3},  # 0, 1.25, 2.5
        ),
        (
            "balpoe-wcdas",
            "inat2018",
            BALPOE.format("iNaturalist_resnet50"),
            {f"{FIRST}.prior": 1.0, "options.spread": 2.0, f"{FIRST}.mixup": 0.2},  # −1, 1, 3
        ),
        (
            "balms",
            "cifar100-lt",
            BALMS,
            {
                f"{FIRST}.prior": 0.0,  # softmax_imba200 is what it goes on from
                f"{FIRST}.loss": "cross-entropy",
                f"{SECOND}.head": "fresh",
                f"{SECOND}.prior": 1.0,
                f"{SECOND}.sampler": "meta",
                f"{SECOND}.sampler_options.lr": 0.01,
                f"{SECOND}.lr": 0.1,
            },
        ),
        ("class-balanced", "inat2018", CLASS_BALANCED, {f"{FIRST}.loss_options.beta": 0.999}),
        (
            "class-balanced",
            "cifar100-lt",
            "its paper: on CIFAR-100 only small values help",
            {f"{FIRST}.loss_options.beta": 0.99},
        ),
        (
            "class-balanced",
            "cifar10-lt",
            "richardaecn/class-balanced-loss: cifar_im_trainval_cb.sh",
            {f"{FIRST}.loss_options.beta": 0.9999},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_method_on_a_dataset(
    method: str, dataset: str, source: str, expected: dict[str, Any]
) -> None:
    resolved = flat(as_table(resolve(method, dataset, [{}], {}, None)))
    assert {key: resolved[key] for key in expected} == expected, source


PUBLIC_CODE = {
    "cifar10-lt": ("public-code-wcdas-cifar-lt", 700, 256, 0.2, 0.005, "strong", "class-aware"),
    "cifar100-lt": ("public-code-wcdas-cifar-lt", 700, 256, 0.2, 0.005, "strong", "class-aware"),
    "imagenet-lt": ("paper-wcdas-imagenet-lt", 90, 256, 0.4, 0.2, "standard", "class-balanced"),
    "inat2018": ("paper-wcdas-inat2018", 200, 512, 0.4, 0.2, "crop-and-flip", "class-balanced"),
}


@pytest.mark.parametrize("dataset", PUBLIC_CODE)
def test_the_public_code_of_the_paper(dataset: str) -> None:
    """Where paper and code agree, and the code's where it says more."""
    recipe, epochs, batch_size, lr, second_lr, augment, sampler = PUBLIC_CODE[dataset]
    layers = [{key: value for key, value in read_recipe(recipe).items() if key != "method"}, {}]
    first, second = resolve("wcdas", dataset, layers, {}, None).stages.values()
    assert (first.epochs, second.epochs) == (epochs, 30), WCDAS
    assert (first.lr, second.lr) == (lr, second_lr)
    assert second.sampler == sampler
    for stage in (first, second):
        assert (stage.batch_size, stage.augment) == (batch_size, augment)
        assert (stage.warmup, stage.schedule) == (0, "cosine")
        assert (stage.momentum, stage.nesterov, stage.weight_decay) == (0.9, False, 1e-4)


@pytest.mark.parametrize("dataset", ["cifar10-lt", "cifar100-lt"])
def test_the_paper_recipes_of_cifar_inherit_nothing_of_the_strong_protocol(dataset: str) -> None:
    recipe = read_recipe(f"paper-wcdas-{dataset}")
    del recipe["method"]
    with_dataset = resolve("wcdas", dataset, [recipe, {}], {}, None)
    alone = resolve("wcdas", "data of one's own", [recipe, {}], {}, None)
    assert with_dataset == alone
    assert with_dataset.stages["representation"].batch_size == 256  # WCDAS
    assert with_dataset.stages["representation"].augment == "standard"
