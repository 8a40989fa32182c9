"""What a user of an exported file has to know, in the file itself."""

import json
from typing import Any

import wcdas
from wcdas.data.decode import MAX_PIXELS
from wcdas.data.resize import CENTRE_CROP_FROM
from wcdas.deploy.model import Model
from wcdas.run.model_file import ModelInfo

EXPORT_FORMAT = 1


def preprocessing(info: ModelInfo) -> dict[str, Any]:
    """From a picture to the input `images`, in the order it is done."""
    if info.backbone == "identity":
        return {"input": "feature vectors", "length": info.channels}
    cut = info.input_size >= CENTRE_CROP_FROM
    return {
        "input": "images",
        "layout": "NCHW",
        "frame": "first",
        "orientation": "turned upright as EXIF says",
        "transparency": "laid on white",
        "sixteen_bit": "scaled to 8 bits, 65535 to 255",
        "mode": "L" if info.channels == 1 else "RGB",
        "max_pixels": MAX_PIXELS,
        "crop": "central square of 224/256 of the shorter side" if cut else "none",
        "crop_fraction": 224 / 256 if cut else 1.0,
        "resize": [info.input_size, info.input_size],
        "interpolation": "bilinear, antialiased, as Pillow's Image.resize(size, BILINEAR, box)",
        "scale": 1 / 255,
        "mean": info.mean,
        "std": info.std,
    }


def metadata(model: Model, prior: str | None) -> dict[str, str]:
    """Texts by name; lists and tables are JSON."""
    info = model.info
    target = None if prior is None else model.prior(prior).tolist()
    return {
        "wcdas_format": str(EXPORT_FORMAT),
        "wcdas_version": wcdas.__version__,
        "class_names": json.dumps(info.class_names),
        "class_counts": json.dumps(info.class_counts),
        "preprocessing": json.dumps(preprocessing(info)),
        "outputs": json.dumps(
            {
                "logits": "over the temperature, moved to the prior",
                "probabilities": "softmax of the logits",
            }
        ),
        "temperature": json.dumps(info.temperature),
        "prior": json.dumps({"trained": info.prior, "predicts_for": target}),
        "method": info.method,
        "dataset": info.dataset,
        "backbone": info.backbone,
        "neck": info.neck,
        "head": info.head,
    }
