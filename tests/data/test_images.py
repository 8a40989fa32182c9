import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from wcdas.data.images import check_image, extensions, open_image
from wcdas.errors import InputError


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(shape, seed=0):
    return np.random.RandomState(seed).randint(0, 256, shape).astype(np.uint8)


def png_header(width, height):
    def chunk(kind, data):
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def test_rgb_stays_as_it_is():
    pixels = noise((5, 7, 3))
    assert (np.asarray(open_image(encoded(Image.fromarray(pixels)), 3)) == pixels).all()


def test_sixteen_bit_grey_is_scaled():
    values = np.array([[0, 257, 32896, 65535, 127, 129]], dtype=np.uint16)
    found = np.asarray(open_image(encoded(Image.fromarray(values)), 1))
    assert found.tolist() == [[0, 1, 128, 255, 0, 1]]


@pytest.mark.parametrize("kind", ["TIFF", "PNG"])
def test_sixteen_bit_grey_as_rgb(kind):
    values = np.array([[0, 65535], [257 * 7, 257 * 200]], dtype=np.uint16)
    found = np.asarray(open_image(encoded(Image.fromarray(values), kind), 3))
    assert (found == np.array([[0, 255], [7, 200]])[..., None]).all()


@pytest.mark.parametrize(("top", "expected"), [(1.0, 255), (200.0, 200)])
def test_float_grey_is_read_by_its_range(top, expected):
    values = np.array([[0.0, top]], dtype=np.float32)
    found = np.asarray(open_image(encoded(Image.fromarray(values), "TIFF"), 1))
    assert found.tolist() == [[0, expected]]


def test_transparent_pixels_are_white():
    pixels = np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 0, 0, 51]]], dtype=np.uint8)
    found = np.asarray(open_image(encoded(Image.fromarray(pixels, "RGBA")), 3))
    assert found[0].tolist() == [[10, 20, 30], [255, 255, 255], [204, 204, 204]]


def test_grey_with_alpha():
    pixels = np.array([[[10, 255], [10, 0]]], dtype=np.uint8)
    found = np.asarray(open_image(encoded(Image.fromarray(pixels, "LA")), 1))
    assert found.tolist() == [[10, 255]]


def test_palette_becomes_its_colours():
    image = Image.fromarray(np.array([[0, 1]], dtype=np.uint8), "P")
    image.putpalette([200, 100, 50, 1, 2, 3])
    found = np.asarray(open_image(encoded(image), 3))
    assert found[0].tolist() == [[200, 100, 50], [1, 2, 3]]
    see_through = np.asarray(open_image(encoded(image, transparency=1), 3))
    assert see_through[0].tolist() == [[200, 100, 50], [255, 255, 255]]


def test_cmyk_becomes_rgb():
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    found = np.asarray(open_image(encoded(image, "TIFF"), 3))
    assert (found == [255, 0, 0]).all()
    jpeg = np.asarray(open_image(encoded(image, "JPEG"), 3)).astype(int)
    assert abs(jpeg - [255, 0, 0]).max() < 12


def test_exif_rotation_is_applied():
    pixels = noise((4, 6, 3))
    exif = Image.Exif()
    exif[0x0112] = 6
    found = np.asarray(open_image(encoded(Image.fromarray(pixels), exif=exif), 3))
    assert (found == np.rot90(pixels, -1)).all()


def test_first_frame_of_an_animation():
    frames = [Image.new("L", (3, 3), value) for value in (40, 200)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (np.asarray(open_image(data, 1)) == 40).all()


def test_one_bit_black_and_white():
    image = Image.fromarray(np.array([[0, 255]], dtype=np.uint8)).convert("1")
    assert np.asarray(open_image(encoded(image), 1)).tolist() == [[0, 255]]


@pytest.mark.parametrize("read", [check_image, lambda data: open_image(data, 3)])
@pytest.mark.parametrize("side", [50_000, 12_000])
def test_huge_pictures_are_refused_from_the_header(read, side, monkeypatch):
    monkeypatch.delattr(ImageFile.ImageFile, "load")  # which decodes
    with pytest.raises(InputError, match=r"expected at most|more than 100,000,000 pixels"):
        read(png_header(side, side))


def test_the_limit_on_pixels_is_exact():
    with pytest.raises(InputError, match="10001×10000 pixels; expected at most 100,000,000"):
        check_image(png_header(10_001, 10_000))
    # Let through, and found to lack most of its pixels.
    with pytest.raises(InputError, match="cannot be read: image file is truncated"):
        check_image(png_header(10_000, 10_000))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP"])
@pytest.mark.parametrize("read", [check_image, lambda path: open_image(path, 3)])
def test_truncated_files_are_named(tmp_path, kind, read):
    data = encoded(Image.fromarray(noise((64, 64, 3))), kind)
    path = tmp_path / "half.img"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"half\.img cannot be read: "):
        read(path)


@pytest.mark.parametrize("data", [b"", b"no picture", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"])
def test_what_is_no_picture_is_refused(tmp_path, data):
    path = tmp_path / "note.jpg"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"note\.jpg cannot be read"):
        open_image(path, 3)


def test_every_damage_ends_in_one_kind_of_error():
    generator = np.random.RandomState(0)
    for kind in ("PNG", "GIF", "TIFF", "WEBP", "JPEG"):
        good = np.frombuffer(encoded(Image.fromarray(noise((16, 16, 3))), kind), np.uint8)
        for _ in range(60):
            bad = good.copy()
            bad[generator.randint(0, len(bad), 4)] = generator.randint(0, 256, 4)
            try:
                image = open_image(bad.tobytes(), 3, name="x")
            except InputError as error:
                assert "\n" not in str(error)  # noqa: PT017
            else:
                assert image.mode == "RGB"


def test_postscript_is_never_interpreted(tmp_path):
    path = tmp_path / "program.eps"
    path.write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    )
    with pytest.raises(InputError, match="not an image that can be read"):
        open_image(path, 3)
    assert ".eps" not in extensions()


def test_usual_extensions_are_known():
    assert {".jpg", ".jpeg", ".png", ".webp", ".tif", ".bmp", ".gif"} <= extensions()


def test_damaged_exif_does_not_lose_the_picture():
    pixels = noise((4, 6, 3))
    data = encoded(Image.fromarray(pixels), exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x05broken")
    assert (np.asarray(open_image(data, 3)) == pixels).all()


def test_header_tells_grey_from_colour():
    assert check_image(encoded(Image.new("L", (3, 2)))) == (3, 2, True)
    assert check_image(encoded(Image.new("RGB", (3, 2)))) == (3, 2, False)
    assert check_image(encoded(Image.new("RGB", (90, 70)), "JPEG")) == (90, 70, False)


def test_only_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    for source, told in ((tmp_path / "pipe.png", "is a pipe"), (Path("/dev/zero"), "is a device")):
        with pytest.raises(InputError, match=told):
            check_image(source)
        with pytest.raises(InputError, match=told):
            open_image(source, 3)
