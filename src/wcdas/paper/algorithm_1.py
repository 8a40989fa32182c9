"""Algorithm 1: the forward pass, the loss and the update, line by line beside the head."""

import math

import torch
from torch import Tensor

from wcdas.heads import WCDASHead
from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.paper.identity import TOLERANCE, gap

CLASSES, FEATURES, IMAGES = 100, 16, 32
SCALE = 30.0


def printed_loss(x: Tensor, w: Tensor, w_rho: Tensor, labels: Tensor, scale: float) -> Tensor:
    """Lines 5 to 9 as printed, with f multiplied by `scale`; line 8 has no s."""
    rho = 1 / (1 + torch.exp(-w_rho))
    cosine = x @ w.mT / (x.norm(dim=1, keepdim=True) * w.norm(dim=1))
    f = (1 - rho**2) / (2 * math.pi * (1 + rho**2 - 2 * rho * cosine))
    powers = torch.exp(scale * f)
    probability = powers[torch.arange(len(x)), labels] / powers.sum(1)
    return -probability.log().mean()


def check(setting: Setting, scale_in_softmax: bool = False) -> Finding:
    """Loss and gradients of the printed lines against the head's, with and without s in line 8."""
    random = torch.Generator().manual_seed(0)
    head = WCDASHead(FEATURES, CLASSES, scale=SCALE, start="paper").double()
    x = torch.randn(IMAGES, FEATURES, generator=random, dtype=torch.float64)
    labels = torch.randint(CLASSES, (IMAGES,), generator=random)
    loss = head.loss(x, labels)
    grads = torch.autograd.grad(loss, (head.weight, head.w_rho))

    def differences(scale: float) -> float:
        printed = printed_loss(x, head.weight, head.w_rho, labels, scale)
        its_grads = torch.autograd.grad(printed, (head.weight, head.w_rho))
        pairs = [(printed, loss), *zip(its_grads, grads, strict=True)]
        return max(gap(one.detach(), other.detach()) for one, other in pairs)

    as_printed, with_scale = differences(SCALE if scale_in_softmax else 1.0), differences(SCALE)
    best = _best_probability(1.0, 0.5)
    sentence = (
        f"Loss and gradients of w and w_ρ differ by {as_printed:.2g} from the head's with line 8 "
        + ("with s" if scale_in_softmax else "as printed, without s")
        + f", and by {with_scale:.1e} with s·f in it. Without s, {CLASSES} classes and ρ = 0.5, "
        f"no image can have a probability above {100 * best:.1f} %; with s = {SCALE:g} it is "
        f"{100 * _best_probability(SCALE, 0.5):.1f} %. For an image's own class the loss moves ρ "
        f"along ∂f/∂ρ, for the other classes against it: true of "
        f"{100 * _signs(head, x, labels):.0f} % of the images' terms."
    )
    return Finding(
        judge(as_printed <= TOLERANCE, with_scale <= TOLERANCE),
        sentence,
        {
            "difference as printed": as_printed,
            "difference with s·f": with_scale,
            "largest probability without s": best,
        },
    )


def _best_probability(scale: float, rho: float) -> float:
    """An image at angle 0 of its class and π of all others."""
    peak, trough = (1 + rho) / (1 - rho), (1 - rho) / (1 + rho)
    return 1 / (1 + (CLASSES - 1) * math.exp(-scale * (peak - trough) / (2 * math.pi)))


def _signs(head: WCDASHead, x: Tensor, labels: Tensor) -> float:
    """How often −∂L/∂f has the sign + for the image's own class and − for the others."""
    logits = head(x).detach().requires_grad_()
    (grad,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, labels), logits)
    own = torch.nn.functional.one_hot(labels, CLASSES).bool()
    return float(((-grad > 0) == own).double().mean())


CLAIMS = (
    Claim(
        "algorithm-1",
        "Section 3.3, Algorithm 1",
        "Sigmoid, cosine, wrapped Cauchy density, softmax of f, cross-entropy, update of w_ρ, w.",
        "a second",
        check,
        "1e-10 in loss and gradients",
    ),
)
