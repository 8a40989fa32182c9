"""All methods: those with a file of their own by the name of their constant, others as a table."""

from wcdas.methods.balpoe import BALPOE, BALPOE_WCDAS
from wcdas.methods.center_loss import CENTER_LOSS
from wcdas.methods.decoupling import NCM, TAU_NORM
from wcdas.methods.equilibrium import EQUILIBRIUM
from wcdas.methods.gaussian_affinity import GAUSSIAN_AFFINITY
from wcdas.methods.hybrid_contrastive import HYBRID_CONTRASTIVE, HYBRID_CONTRASTIVE_WCDAS
from wcdas.methods.ldam_drw import LDAM_DRW
from wcdas.methods.margins import AM_SOFTMAX, ARCFACE, L_SOFTMAX, SPHEREFACE, T_VMF
from wcdas.methods.meta_weight_net import META_WEIGHT_NET
from wcdas.methods.method import Method, one_stage, two_stages
from wcdas.methods.oltr import OLTR
from wcdas.methods.paco import PACO, PACO_WCDAS
from wcdas.methods.proco import PROCO, PROCO_WCDAS
from wcdas.methods.ride import RIDE, RIDE_WCDAS
from wcdas.methods.sade import SADE, SADE_WCDAS

LEARNED = {"sampler": "meta", "sampler_options": {"lr": 0.01}}

METHODS: dict[str, Method] = {
    "softmax": Method(
        summary="linear classifier with cross-entropy, one stage: the baseline",
        paper="—",
        defaults=one_stage({"name": "linear"}),
    ),
    "softmax-two-stage": Method(
        summary="linear classifier, two stages, the second class-balanced",
        paper="Kang et al., 2020 (arXiv:1910.09217)",
        defaults=two_stages({"name": "linear"}),
    ),
    "focal": Method(
        summary="cross-entropy that fades where the network is sure, γ = 2, one stage",
        paper="Lin et al., 2017 (arXiv:1708.02002)",
        reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 43.8",
        defaults=one_stage({"name": "linear"}, {"loss": "focal", "loss_options": {"gamma": 2.0}}),
    ),
    "class-balanced": Method(
        summary="cross-entropy weighted by the inverse effective number of images, one stage",
        paper="Cui et al., 2019 (arXiv:1901.05555)",
        reported="CIFAR-100-LT IF 100, ResNet-32, best of its losses: 39.6",
        defaults=one_stage(
            {"name": "linear"}, {"loss": "class-balanced", "loss_options": {"beta": 0.9999}}
        ),
    ),
    "equalization": Method(
        summary="rare classes are spared the gradients of other classes' images, one stage",
        paper="Tan et al., 2020 (arXiv:2003.05176)",
        defaults=one_stage({"name": "linear"}, {"loss": "equalization"}),
    ),
    "ldam-drw": LDAM_DRW,
    "crt": Method(
        summary="softmax, then a fresh classifier trained on class-balanced batches",
        paper="Kang et al., 2020 (arXiv:1910.09217)",
        reported="ImageNet-LT, ResNet-10: 41.8",
        defaults=two_stages({"name": "linear"}, classifier={"head": "fresh"}),
    ),
    "lws": Method(
        summary="softmax, then one learned scale for every class on class-balanced batches",
        paper="Kang et al., 2020 (arXiv:1910.09217)",
        reported="ImageNet-LT, ResNet-10: 41.4",
        defaults=two_stages({"name": "linear", "bias": False}, classifier={"head": "lws"}),
    ),
    "tau-norm": TAU_NORM,
    "ncm": NCM,
    # Balanced softmax is cross-entropy with the class prior in it. The authors' decoupled training,
    # `balms_imba200.yaml` of jiawei-ren/BalancedMetaSoftmax-Classification, goes on from plain
    # softmax; balanced softmax from the first stage on is another row of theirs, end to end.
    "balms": Method(
        summary="softmax, then a fresh classifier by balanced softmax with a learned sampler",
        paper="Ren et al., 2020 (arXiv:2007.10740)",
        reported="CIFAR-100-LT IF 100, ResNet-32: 50.8; CIFAR-10-LT IF 100: 84.9",
        defaults=two_stages(
            {"name": "linear"}, classifier={"head": "fresh", "prior": 1.0} | LEARNED
        ),
    ),
    "oltr": OLTR,
    "center-loss": CENTER_LOSS,
    "angular-softmax": Method(
        summary="scaled cosine, two stages: the paper's angular baseline",
        paper="Han, 2023, Equation 2",
        reported="CIFAR-100-LT IF 100, ResNet-32: 49.7; ImageNet-LT, ResNet-10: 38.7",
        defaults=two_stages({"name": "cosine", "start": "paper"}),
    ),
    "angular-softmax-one-stage": Method(
        summary="scaled cosine, one stage",
        paper="Han, 2023, Equation 2",
        defaults=one_stage({"name": "cosine", "start": "paper"}),
    ),
    "l-softmax": L_SOFTMAX,
    "am-softmax": AM_SOFTMAX,
    "arcface": ARCFACE,
    "sphereface": SPHEREFACE,
    "t-vmf": T_VMF,
    "wndas": Method(
        summary="wrapped Normal head, a concentration for every class, two stages",
        paper="Han, 2023 (ICML)",
        reported="ImageNet-LT, ResNet-10: 42.3",
        defaults=two_stages({"name": "wndas", "start": "paper"}),
    ),
    "wndas-single": Method(
        summary="wrapped Normal head, one concentration for all classes, two stages",
        paper="Han, 2023 (ICML)",
        reported="ImageNet-LT, ResNet-10: 42.1",
        defaults=two_stages({"name": "wndas", "per_class": False, "start": "paper"}),
    ),
    "wcdas-single": Method(
        summary="wrapped Cauchy head, one concentration for all classes, two stages",
        paper="Han, 2023 (ICML)",
        reported="ImageNet-LT, ResNet-10: 43.8",
        defaults=two_stages({"name": "wcdas", "per_class": False, "start": "paper"}),
    ),
    "wcdas": Method(
        summary="wrapped Cauchy head, two stages, the second class-balanced",
        paper="Han, 2023 (ICML)",
        reported="CIFAR-100-LT IF 100, ResNet-32: 52.5; ImageNet-LT, ResNet-10: 44.5",
        defaults=two_stages({"name": "wcdas", "start": "paper"}),
    ),
    "wcdas-meta": Method(
        summary="wrapped Cauchy head, two stages, the second with the learned sampler of BALMS",
        paper="Han, 2023 (ICML); Ren et al., 2020 (arXiv:2007.10740)",
        reported="ImageNet-LT, ResNet-10: 44.1",
        defaults=two_stages({"name": "wcdas", "start": "paper"}, classifier=LEARNED),
    ),
    "wcdas-prior": Method(
        summary="wrapped Cauchy head with the class prior in the loss, one stage, mixup",
        paper="this project; the prior as in Menon et al., 2020",
        defaults=one_stage(
            {"name": "wcdas"},
            {"prior": 1.0, "concentration_weight_decay": 0.0, "mixup": 0.4, "nesterov": True},
        ),
    ),
    "equilibrium": EQUILIBRIUM,
    "meta-weight-net": META_WEIGHT_NET,
    "gaussian-affinity": GAUSSIAN_AFFINITY,
    "ride": RIDE,
    "ride-wcdas": RIDE_WCDAS,
    "sade": SADE,
    "sade-wcdas": SADE_WCDAS,
    "balpoe": BALPOE,
    "balpoe-wcdas": BALPOE_WCDAS,
    "paco": PACO,
    "paco-wcdas": PACO_WCDAS,
    "proco": PROCO,
    "proco-wcdas": PROCO_WCDAS,
    "hybrid-contrastive": HYBRID_CONTRASTIVE,
    "hybrid-contrastive-wcdas": HYBRID_CONTRASTIVE_WCDAS,
}
