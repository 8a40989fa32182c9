"""The methods that are tables: a head, and the stages that train it."""

from wcdas.methods.method import REPRESENTATION, Method, one_stage, two_stages

SOFTMAX = Method(
    summary="linear classifier with cross-entropy, one stage: the baseline",
    paper="—",
    defaults=one_stage({"name": "linear"}),
)

SOFTMAX_TWO_STAGE = Method(
    summary="linear classifier, two stages, the second class-balanced",
    paper="Kang et al., 2020 (arXiv:1910.09217)",
    defaults=two_stages({"name": "linear"}),
)

FOCAL = Method(
    summary="cross-entropy that fades where the network is sure, γ = 2, one stage",
    paper="Lin et al., 2017 (arXiv:1708.02002)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 43.8",
    defaults=one_stage({"name": "linear"}, {"loss": "focal", "loss_options": {"gamma": 2.0}}),
)

CLASS_BALANCED = Method(
    summary="cross-entropy weighted by the inverse effective number of images, one stage",
    paper="Cui et al., 2019 (arXiv:1901.05555)",
    reported="CIFAR-100-LT IF 100, ResNet-32, best of its losses: 39.6",
    defaults=one_stage(
        {"name": "linear"}, {"loss": "class-balanced", "loss_options": {"beta": 0.9999}}
    ),
)

EQUALIZATION = Method(
    summary="rare classes are spared the gradients of other classes' images, one stage",
    paper="Tan et al., 2020 (arXiv:2003.05176)",
    defaults=one_stage({"name": "linear"}, {"loss": "equalization"}),
)

LDAM = {"max_margin": 0.5, "scale": 30.0}

LDAM_DRW = Method(
    summary="margins C/n^¼, and class weights in the last fifth of the epochs",
    paper="Cao et al., 2019 (arXiv:1906.07413)",
    reported="CIFAR-100-LT IF 100, ResNet-32: 42.0; CIFAR-10-LT IF 100: 77.0",
    defaults={
        "head": {"name": "cosine", "scale": 30.0},
        # One stage goes on as another, momentum and schedule too, with class weights.
        "stages": {
            "representation": REPRESENTATION | {"loss": "ldam", "loss_options": LDAM},
            "reweighting": {
                "optimizer": "continue",
                "share": 0.2,
                "loss_options": LDAM | {"beta": 0.9999},
            },
        },
    },
)

CRT = Method(
    summary="softmax, then a fresh classifier trained on class-balanced batches",
    paper="Kang et al., 2020 (arXiv:1910.09217)",
    reported="ImageNet-LT, ResNet-10: 41.8",
    defaults=two_stages({"name": "linear"}, classifier={"head": "fresh"}),
)

LWS = Method(
    summary="softmax, then one learned scale for every class on class-balanced batches",
    paper="Kang et al., 2020 (arXiv:1910.09217)",
    reported="ImageNet-LT, ResNet-10: 41.4",
    defaults=two_stages({"name": "linear", "bias": False}, classifier={"head": "lws"}),
)

LEARNED = {"sampler": "meta", "sampler_options": {"lr": 0.01}}

BALMS = Method(
    summary="balanced softmax, then a fresh classifier with a learned sampler",
    paper="Ren et al., 2020 (arXiv:2007.10740)",
    reported="CIFAR-100-LT IF 100, ResNet-32: 50.8; CIFAR-10-LT IF 100: 84.9",
    # Balanced softmax is cross-entropy with the class prior in it.
    defaults=two_stages(
        {"name": "linear"}, {"prior": 1.0}, {"head": "fresh", "prior": 1.0} | LEARNED
    ),
)

ANGULAR_SOFTMAX = Method(
    summary="scaled cosine, two stages: the paper's angular baseline",
    paper="Han, 2023, Equation 2",
    reported="CIFAR-100-LT IF 100, ResNet-32: 49.7; ImageNet-LT, ResNet-10: 38.7",
    defaults=two_stages({"name": "cosine", "start": "paper"}),
)

ANGULAR_SOFTMAX_ONE_STAGE = Method(
    summary="scaled cosine, one stage",
    paper="Han, 2023, Equation 2",
    defaults=one_stage({"name": "cosine", "start": "paper"}),
)

# As in the authors' CIFAR-10 example of L-Softmax, over 20,000 iterations.
ANNEALING = {"base": 1000.0, "gamma": 0.000025, "power": 35.0, "iterations": 20_000}

L_SOFTMAX = Method(
    summary="angle to the own class times m = 4, λ from 1,000 to 0, two stages",
    paper="Liu et al., 2016 (arXiv:1612.02295)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 51.3",
    defaults=two_stages({"name": "l-softmax", "margin": 4}, {"annealing": ANNEALING}),
)

AM_SOFTMAX = Method(
    summary="cos θ − 0.35 for the own class, s = 30, two stages",
    paper="Wang et al., 2018 (arXiv:1801.05599)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 50.1",
    defaults=two_stages({"name": "am-softmax", "margin": 0.35, "scale": 30.0}),
)

# The authors' networks end in features around zero. Those of a ResNet are positive, all in one
# narrow cone, where the whole margin from the first step on draws every feature and every weight to
# one direction, at which the loss stays. So the margin grows while the network learns.
ARCFACE = Method(
    summary="cos(θ + 0.5) for the own class, s = 64, λ from 1,000 to 0, two stages",
    paper="Deng et al., 2019 (arXiv:1801.07698)",
    defaults=two_stages(
        {"name": "arcface", "margin": 0.5, "scale": 64.0}, {"annealing": ANNEALING}
    ),
)

SPHEREFACE = Method(
    summary="angle to the own class times m = 4, unit weights, λ from 1,000 to 5, two stages",
    paper="Liu et al., 2017 (arXiv:1704.08063)",
    defaults=two_stages(
        {"name": "sphereface", "margin": 4},
        # The authors' schedule, over their 28,000 iterations.
        {
            "annealing": {
                "base": 1000.0,
                "gamma": 0.12,
                "power": 1.0,
                "minimum": 5.0,
                "iterations": 28_000,
            }
        },
    ),
)

T_VMF = Method(
    summary="heavy-tailed von Mises–Fisher similarity, κ = 16, two stages",
    paper="Kobayashi, 2021 (CVPR)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 50.3",
    defaults=two_stages({"name": "t-vmf", "kappa": 16.0, "start": "paper"}),
)

WNDAS = Method(
    summary="wrapped Normal head, a concentration for every class, two stages",
    paper="Han, 2023 (ICML)",
    reported="ImageNet-LT, ResNet-10: 42.3",
    defaults=two_stages({"name": "wndas", "start": "paper"}),
)

WNDAS_SINGLE = Method(
    summary="wrapped Normal head, one concentration for all classes, two stages",
    paper="Han, 2023 (ICML)",
    reported="ImageNet-LT, ResNet-10: 42.1",
    defaults=two_stages({"name": "wndas", "per_class": False, "start": "paper"}),
)

WCDAS_SINGLE = Method(
    summary="wrapped Cauchy head, one concentration for all classes, two stages",
    paper="Han, 2023 (ICML)",
    reported="ImageNet-LT, ResNet-10: 43.8",
    defaults=two_stages({"name": "wcdas", "per_class": False, "start": "paper"}),
)

WCDAS = Method(
    summary="wrapped Cauchy head, two stages, the second class-balanced",
    paper="Han, 2023 (ICML)",
    reported="CIFAR-100-LT IF 100, ResNet-32: 52.5; ImageNet-LT, ResNet-10: 44.5",
    defaults=two_stages({"name": "wcdas", "start": "paper"}),
)

WCDAS_META = Method(
    summary="wrapped Cauchy head, two stages, the second with the learned sampler of BALMS",
    paper="Han, 2023 (ICML); Ren et al., 2020 (arXiv:2007.10740)",
    reported="ImageNet-LT, ResNet-10: 44.1",
    defaults=two_stages({"name": "wcdas", "start": "paper"}, classifier=LEARNED),
)

WCDAS_PRIOR = Method(
    summary="wrapped Cauchy head with the class prior in the loss, one stage, mixup",
    paper="this project; the prior as in Menon et al., 2020",
    defaults=one_stage(
        {"name": "wcdas"},
        {"prior": 1.0, "concentration_weight_decay": 0.0, "mixup": 0.4, "nesterov": True},
    ),
)
