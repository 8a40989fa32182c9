"""The Gaussian affinity against its definition, point by point."""

import numpy as np
import pytest
import torch

from wcdas import GaussianAffinityHead


def by_hand(x, prototypes, sigma):
    """log max_t exp(−‖x − w_jt‖²/σ), one pair at a time."""
    values = [
        [max(np.exp(-((row - w) ** 2).sum() / sigma) for w in of_class) for of_class in prototypes]
        for row in x
    ]
    return torch.tensor(np.log(values))


@pytest.mark.parametrize("sigma", [1.0, 10.0, 80.0])
@pytest.mark.parametrize("prototypes", [1, 3])
def test_definition(sigma, prototypes):
    torch.manual_seed(0)
    head = GaussianAffinityHead(6, 4, sigma=sigma, prototypes=prototypes).double()
    features = torch.randn(5, 6, dtype=torch.float64)
    expected = by_hand(features.numpy(), head.prototypes.detach().numpy(), sigma)
    torch.testing.assert_close(head(features), expected)
    assert head.prototypes.shape == (4, prototypes, 6)


def test_probabilities_are_shares_of_the_affinities():
    head, features = GaussianAffinityHead(6, 4).double(), torch.randn(5, 6, dtype=torch.float64)
    w = head.weight.detach().numpy()[:, None]
    affinities = by_hand(features.numpy(), w, head.sigma).exp()
    shares = affinities / affinities.sum(1, keepdim=True)
    torch.testing.assert_close(head(features).softmax(1), shares)


def test_the_affinity_to_a_prototype_itself_is_one():
    head = GaussianAffinityHead(6, 4, feature_scale=0.5)
    torch.testing.assert_close(head(2 * head.weight.detach()).exp().diagonal(), torch.ones(4))


@pytest.mark.parametrize("sigma", [10.0, 90.0])
def test_the_fitted_scale_makes_features_as_long_as_the_public_code_has_them(sigma):
    """256 batch-normed ones beside σ = 90, seen from the origin; later calls change nothing."""
    theirs = torch.nn.functional.batch_norm(torch.rand(64, 256), None, None, training=True)
    expected = (theirs.square().sum(1) / 90).mean().item()
    head, features = GaussianAffinityHead(6, 4, sigma=sigma), 30 * torch.randn(64, 6)
    head.weight.data.zero_()
    head.fit_scale(features.square().sum(1).mean())
    assert -head(features).mean().item() == pytest.approx(expected, rel=1e-3)
    before = head.feature_scale.clone()
    head.fit_scale(torch.tensor(5.0))
    assert head.feature_scale.equal(before)
    other = GaussianAffinityHead(6, 4)
    other.load_state_dict(head.state_dict())
    other.fit_scale(torch.tensor(5.0))
    assert other.feature_scale.equal(before)


def test_a_given_scale_is_kept():
    head = GaussianAffinityHead(6, 4, feature_scale=0.25)
    head.fit_scale(torch.tensor(5.0))
    assert head.feature_scale.item() == 0.25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigma": 0.0}, "sigma is 0.0; expected a number above 0"),
        ({"feature_scale": -1.0}, "feature_scale is -1.0; expected a number above 0"),
        ({"prototypes": 0}, "prototypes is 0; expected a whole number of at least 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GaussianAffinityHead(6, 4, **options)
