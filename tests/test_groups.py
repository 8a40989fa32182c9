import pytest
import torch

from wcdas.groups import IN_WORDS, group_means, group_names, group_sizes, groups

COUNTS = torch.tensor([101, 100, 20, 19])


def test_groups_at_their_borders():
    masks = groups(COUNTS)
    assert {name: mask.tolist() for name, mask in masks.items()} == {
        "many": [True, False, False, False],
        "medium": [False, True, True, False],
        "few": [False, False, False, True],
    }
    assert group_names(COUNTS) == ["many", "medium", "medium", "few"]
    assert group_sizes(COUNTS) == {"many": 1, "medium": 2, "few": 1}


def test_means_leave_out_classes_without_a_value():
    values = torch.tensor([torch.nan, 0.25, 0.5, 1.0])
    assert group_means(values, COUNTS) == {"many": None, "medium": 0.375, "few": 1.0}


@pytest.mark.parametrize("group", ["many", "medium", "few"])
def test_words_begin_with_the_group(group):
    assert IN_WORDS[group].startswith(f"{group} (")
