"""Features on the disk: what is kept, what is noticed, what a failure costs."""

import os

import pytest
import torch

from wcdas.data import feature_store
from wcdas.data.feature_store import FeatureStore, make_room, store_root

DIGESTS = [bytes([i]) * 32 for i in range(6)]
FEATURES = torch.arange(24.0).view(6, 4)


@pytest.fixture(autouse=True)
def said(tmp_path, monkeypatch) -> list[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return []


@pytest.fixture
def store(said) -> FeatureStore:
    with FeatureStore("network", said.append) as written:
        written.add(DIGESTS[:4], FEATURES[:4])
    return FeatureStore("network", said.append)


def parts() -> list:
    return sorted(store_root().glob("*/*.safetensors"))


def test_what_was_added_is_found(store, said):
    found = store.read(DIGESTS[2:])
    assert set(found) == set(DIGESTS[2:4])
    assert torch.equal(found[DIGESTS[3]], FEATURES[3])
    assert FeatureStore("another network", said.append).read(DIGESTS) == {}
    assert said == []


def test_parts_are_written_while_the_work_goes_on(said, monkeypatch):
    monkeypatch.setattr(feature_store, "SECONDS", -1.0)
    store = FeatureStore("network", said.append)
    with store:
        store.add(DIGESTS[:2], FEATURES[:2])
        assert len(store.read(DIGESTS)) == 2  # as a killed process leaves them
        store.add(DIGESTS[2:3], FEATURES[2:3])
    assert (len(parts()), len(store.read(DIGESTS))) == (2, 3)


def test_an_error_loses_nothing(said):
    store = FeatureStore("network", said.append)

    def stopped() -> None:
        with store:
            store.add(DIGESTS[:2], FEATURES[:2])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert len(store.read(DIGESTS)) == 2


def test_processes_that_compute_the_same_do_not_disturb_each_other(store, said):
    with FeatureStore("network", said.append) as other:
        other.add(DIGESTS[:4], FEATURES[:4])
    assert (len(parts()), len(store.read(DIGESTS))) == (2, 4)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_part_is_made_again(store, said, damage):
    (part,) = parts()
    data = bytearray(part.read_bytes())
    if damage == "changed":
        data[-1] ^= 1
    part.write_bytes({"cut": data[:-5], "changed": data, "empty": b""}[damage])
    assert store.read(DIGESTS) == {}
    assert said == [f"the stored features in {part} are damaged; they are computed again"]
    assert not part.exists()


def test_a_place_that_cannot_be_written_costs_one_warning(said, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(feature_store, "SECONDS", -1.0)
    with FeatureStore("network", said.append) as store:
        assert store.read(DIGESTS) == {}
        for i in range(3):
            store.add(DIGESTS[i : i + 1], FEATURES[i : i + 1])
    (line,) = said
    assert "features cannot be kept in" in line
    assert "(Not a directory); the next run computes them again" in line


def test_a_full_disk_costs_one_warning(said, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(feature_store, "write_synced", full)
    with FeatureStore("network", said.append) as store:
        store.add(DIGESTS, FEATURES)
    assert len(said) == 1
    assert "(No space left on device)" in said[0]


def test_what_was_not_used_for_longest_makes_room(store, said):
    with FeatureStore("network", said.append) as other:
        other.add(DIGESTS[4:], FEATURES[4:])
    old, new = (FeatureStore(key, said.append) for key in ("network", "a second one"))
    with new:
        new.add(DIGESTS, FEATURES)
    for age, part in enumerate(parts()):
        os.utime(part, (age, age))
    old.read(DIGESTS)  # is a use
    make_room(sum(part.stat().st_size for part in parts()) - 1)
    assert (len(old.read(DIGESTS)), len(new.read(DIGESTS))) == (6, 0)
