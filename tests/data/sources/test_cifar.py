import hashlib
import io
import tarfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from wcdas.data import open_dataset
from wcdas.data.sources import cifar
from wcdas.errors import InputError

SHARED = Path(__file__).parents[3] / "shared" / "data"
real_images = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the real images")


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def official_files(name, per_class=12):
    """Files in the official layout, with a few images of each class in mixed order."""
    archive = cifar.ARCHIVES[f"{name}-lt"]
    classes = 10 if name == "cifar10" else 100
    generator = np.random.RandomState(3)

    def records(n):
        labels = generator.permutation(np.repeat(np.arange(classes), n)).astype(np.uint8)
        pixels = generator.randint(0, 256, (len(labels), 3072)).astype(np.uint8)
        coarse = [np.full_like(labels, 77)] if archive.label_bytes == 2 else []
        return np.column_stack([*coarse, labels, pixels])

    train, test = records(per_class), records(2)
    parts = np.array_split(train, len(archive.train))
    files = dict(zip(archive.train, (part.tobytes() for part in parts), strict=True))
    files[archive.test[0]] = test.tobytes()
    files[archive.class_names] = "".join(f"class{c}\n" for c in range(classes)).encode() + b"\n"
    return files, train, test


def write_archive(root, name, files, monkeypatch, folder=None):
    archive = cifar.ARCHIVES[f"{name}-lt"]
    path = root / archive.file
    with tarfile.open(path, "w:gz") as tar:
        for file, data in files.items():
            info = tarfile.TarInfo(f"{folder or archive.folder}/{file}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(cifar.ARCHIVES, f"{name}-lt", replace(archive, md5=md5))
    return path


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_canonical_subset_of_the_binary_archive(tmp_path, monkeypatch, name):
    files, train, test = official_files(name)
    write_archive(tmp_path, name, files, monkeypatch)
    data = open_dataset(f"{name}-lt", root=tmp_path, imbalance=4)

    offset = cifar.ARCHIVES[f"{name}-lt"].label_bytes
    labels, classes = train[:, offset - 1], len(data.class_names)
    np.random.seed(0)
    chosen = []
    for c in range(classes):
        of_class = np.where(labels == c)[0]
        np.random.shuffle(of_class)
        chosen.extend(of_class[: int(12 * 4 ** (-c / (classes - 1)))])
    expected = train[chosen]
    assert data.train.labels.tolist() == expected[:, offset - 1].tolist()
    assert (data.train.pixels.numpy().reshape(-1, 3072) == expected[:, offset:]).all()
    assert data.train.pixels.shape[1:] == (3, 32, 32)
    assert data.test.labels.tolist() == test[:, offset - 1].tolist()
    assert data.class_names[:2] == ["class0", "class1"]
    checksum = hashlib.sha256(np.array(chosen, dtype="<i8").tobytes()).hexdigest()
    assert data.description["indices_sha256"] == checksum


def test_unpacked_folder_is_the_same_as_the_archive(tmp_path, monkeypatch):
    files, _, _ = official_files("cifar10")
    (tmp_path / "a").mkdir()
    write_archive(tmp_path / "a", "cifar10", files, monkeypatch)
    folder = tmp_path / "b" / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    packed = open_dataset("cifar10-lt", root=tmp_path / "a", imbalance=3, profile="step")
    unpacked = open_dataset("cifar10-lt", root=tmp_path / "b", imbalance=3, profile="step")
    assert packed.fingerprint == unpacked.fingerprint
    assert packed.class_counts.tolist() == [12] * 5 + [4] * 5
    (folder / "test_batch.bin").unlink()
    with pytest.raises(InputError, match="cifar-10-batches-bin is not complete"):
        open_dataset("cifar10-lt", root=tmp_path / "b", imbalance=3)


def test_damaged_archive_is_refused(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"half of it")
    with pytest.raises(InputError, match=r"tar\.gz is damaged: its MD5 is not c32a1d4ab5d03f12"):
        open_dataset("cifar10-lt", root=tmp_path)


def test_members_with_other_names_are_not_read_or_written(tmp_path, monkeypatch):
    files, _, _ = official_files("cifar10")
    root = tmp_path / "root"
    root.mkdir()
    write_archive(root, "cifar10", files, monkeypatch, folder="../cifar-10-batches-bin")
    with pytest.raises(InputError, match="lacks cifar-10-batches-bin/batches"):
        open_dataset("cifar10-lt", root=root)
    assert [path.name for path in tmp_path.rglob("*")] == ["root", "cifar-10-binary.tar.gz"]


def test_torn_records_are_refused(tmp_path, monkeypatch):
    files, _, _ = official_files("cifar10")
    files["test_batch.bin"] = files["test_batch.bin"][:-1]
    write_archive(tmp_path, "cifar10", files, monkeypatch)
    with pytest.raises(
        InputError, match=r"test_batch\.bin has 61459 bytes; expected whole records"
    ):
        open_dataset("cifar10-lt", root=tmp_path, imbalance=3)


@pytest.fixture
def server(tmp_path):
    (tmp_path / "served").mkdir()
    handler = partial(QuietHandler, directory=tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        yield tmp_path / "served", f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def serve_from(url, name, monkeypatch):
    archive = cifar.ARCHIVES[f"{name}-lt"]
    changed = replace(archive, url=f"{url}/{archive.file}")
    monkeypatch.setitem(cifar.ARCHIVES, f"{name}-lt", changed)


def test_archive_is_downloaded_once(tmp_path, monkeypatch, server):
    served, url = server
    path = write_archive(served, "cifar10", official_files("cifar10")[0], monkeypatch)
    serve_from(url, "cifar10", monkeypatch)
    first = open_dataset("cifar10-lt", root=tmp_path / "new" / "root", imbalance=2)
    path.unlink()
    again = open_dataset("cifar10-lt", root=tmp_path / "new" / "root", imbalance=2)
    assert first.fingerprint == again.fingerprint


def test_failed_downloads_say_what_to_put_where(tmp_path, monkeypatch, server):
    served, url = server
    serve_from(url, "cifar100", monkeypatch)
    message = r"cifar-100-binary\.tar\.gz is not in .*root and cannot be downloaded.*data\.root"
    with pytest.raises(InputError, match=message):
        open_dataset("cifar100-lt", root=tmp_path / "root")
    (served / "cifar-100-binary.tar.gz").write_bytes(b"not the archive")
    with pytest.raises(InputError, match=message):
        open_dataset("cifar100-lt", root=tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []


@pytest.fixture(scope="module")
def cifar100():
    return open_dataset("cifar100-lt", root=SHARED)


@real_images
def test_real_cifar100(cifar100):
    assert len(cifar100.train) == 10_847
    assert cifar100.class_counts[[0, 99]].tolist() == [500, 5]
    assert cifar100.test_counts.tolist() == [50] * 100
    assert cifar100.class_names[:2] == ["apple", "aquarium_fish"]
    assert cifar100.train.pixels.shape == (10_847, 3, 32, 32)
    assert (cifar100.input_size, cifar100.channels, cifar100.augment_flip) == (32, 3, True)


@real_images
def test_real_pixels_are_those_of_the_file(cifar100):
    rows = pq.read_table(SHARED / "cifar100" / "train.parquet").to_pylist()
    by_class = {}
    for row in rows:
        by_class.setdefault(row["label"], []).append(row["image"]["bytes"])
    position = 500 + 3
    image = Image.open(io.BytesIO(by_class[1][3]))
    expected = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    assert torch.equal(cifar100.train.pixels[position], expected)


@pytest.mark.slow
@real_images
def test_real_sets_are_nested(cifar100, monkeypatch):
    monkeypatch.setenv("WCDAS_DATA", str(SHARED))
    smaller = open_dataset("cifar100-lt", imbalance=200)
    assert len(smaller.train) == 9_502
    for c in (0, 50, 99):
        small = smaller.train.pixels[smaller.train.labels == c]
        large = cifar100.train.pixels[cifar100.train.labels == c]
        assert torch.equal(small, large[: len(small)])


@pytest.mark.slow
@real_images
def test_real_cifar10():
    data = open_dataset("cifar10-lt", root=SHARED)
    assert len(data.train) == 12_406
    assert data.class_names[0] == "airplane"
    assert data.test_counts.tolist() == [500] * 10


@pytest.mark.slow
@real_images
def test_real_counts_at_imbalance_50():
    assert len(open_dataset("cifar100-lt", root=SHARED, imbalance=50).train) == 12_608


@real_images
@pytest.mark.parametrize("name", ["cifar10-lt", "cifar100-lt"])
@pytest.mark.parametrize("options", [{"imbalance": 5}, {"profile": "step"}])
def test_what_parquet_cannot_serve_is_refused(name, options):
    message = "but .* holds .*; it serves profile 'exp' from imbalance 10 upwards"
    with pytest.raises(InputError, match=message):
        open_dataset(name, root=SHARED, **options)
