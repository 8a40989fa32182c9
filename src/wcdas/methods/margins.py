"""Margins on the angle, and a similarity in its place, with the constants of their authors' code.

The pooled features of a ReLU network lie in a narrow cone: two CIFAR images are at a mean cosine of
0.94 in an untrained ResNet-32, and at the same behind a linear layer. The networks that these
margins were made for end otherwise, so there is a neck between pooling and head, as wide as the
features. The stages are those of all methods.

`l-softmax`: Liu et al., "Large-Margin Softmax Loss for Convolutional Neural Networks", 2016
(arXiv:1612.02295). m, λ and the neck, a linear layer with batch norm and ReLU, are those of
`myexamples/cifar10+/model/cifar_train_test.prototxt` in wy1iu/LargeMargin_Softmax_Loss, which
trains on crops; `cifar10`, without crops, has γ = 0.00002, and `mnist` m = 4, γ = 0.000025 and a
power of 35. Their solver takes 30,000 steps of 128 images, 77 epochs. Here i goes from 0 to 30,000
over the first stage, however many steps it has: λ is 1 after 55 % of it and 0.007 at its end. Their
linear layer takes a map of 4 × 4 places and has 512 features.

`sphereface`: Liu et al., "SphereFace: Deep Hypersphere Embedding for Face Recognition", 2017
(arXiv:1704.08063). m and λ are those of `train/code/sphereface_model.prototxt` in wy1iu/sphereface,
over the 28,000 steps of `sphereface_solver.prototxt`: λ is 5 from 6 % of the stage on. The network
there ends in a linear layer over all places of a map, whose features have both signs; here pooling
and batch norm stand for it. Their layer also rescales the gradient of the margin, which is not done
here.

`am-softmax`: Wang et al., "Additive Margin Softmax for Face Verification", 2018
(arXiv:1801.05599). m and s are those of `prototxt/face_train_test.prototxt` in happynear/AMSoftmax;
the network is SphereFace's.

`arcface`: Deng et al., "ArcFace: Additive Angular Margin Loss for Deep Face Recognition", 2019
(arXiv:1801.07698). m and s are those of `recognition/arcface_torch` in deepinsight/insightface
(`train_v2.py`, `configs/base.py`), and so is a margin that is whole from the first step on. Its
networks (`backbones/iresnet.py`) end in batch norm, dropout at a rate of 0 (0.4 in
`arcface_mxnet`), a linear layer over all places of a map and batch norm, of which the last is here.

`t-vmf`: Kobayashi, "t-vMF Similarity for Regularizing Intra-Class Feature Distribution", 2021
(CVPR). κ is that of `tvMFLoss_k16` in `config/loss_config.py` of tk1980/tvMF, beside −0.3, 4 and
64. The second stage there, `main_finetune.py`, is a new cosine head at a rate of 0.2; here the head
stays, as in the other rows. `--set stages.classifier.head=cosine stages.classifier.lr=0.2` comes
near it: a cosine head that goes on with the class weights.
"""

from wcdas.methods.method import Method, two_stages

L_SOFTMAX = Method(
    summary="angle to the own class times m = 2, λ from 1,000 to 0, two stages",
    paper="Liu et al., 2016 (arXiv:1612.02295)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 51.3",
    defaults=two_stages(
        {"name": "l-softmax", "margin": 2},
        {"annealing": {"base": 1000.0, "gamma": 1e-5, "power": 45.0, "iterations": 30_000}},
        neck="linear-relu",
    ),
)

AM_SOFTMAX = Method(
    summary="cos θ − 0.35 for the own class, s = 30, two stages",
    paper="Wang et al., 2018 (arXiv:1801.05599)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 50.1",
    defaults=two_stages({"name": "am-softmax", "margin": 0.35, "scale": 30.0}, neck="batch-norm"),
)

ARCFACE = Method(
    summary="cos(θ + 0.5) for the own class, s = 64, two stages",
    paper="Deng et al., 2019 (arXiv:1801.07698)",
    defaults=two_stages({"name": "arcface", "margin": 0.5, "scale": 64.0}, neck="batch-norm"),
)

SPHEREFACE = Method(
    summary="angle to the own class times m = 4, unit weights, λ from 1,000 to 5, two stages",
    paper="Liu et al., 2017 (arXiv:1704.08063)",
    defaults=two_stages(
        {"name": "sphereface", "margin": 4},
        {
            "annealing": {
                "base": 1000.0,
                "gamma": 0.12,
                "power": 1.0,
                "minimum": 5.0,
                "iterations": 28_000,
            }
        },
        neck="batch-norm",
    ),
)

T_VMF = Method(
    summary="heavy-tailed von Mises–Fisher similarity, κ = 16, two stages",
    paper="Kobayashi, 2021 (CVPR)",
    reported="none on these data; by Han, 2023, CIFAR-100-LT IF 100, ResNet-32: 50.3",
    defaults=two_stages({"name": "t-vmf", "kappa": 16.0, "start": "paper"}),
)
