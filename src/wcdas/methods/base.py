"""The two stages that most methods are made of."""

from wcdas.methods.method import Method

# Stage 1 of the paper: the whole network on the images as they come.
REPRESENTATION = {"trains": "all", "sampler": "instance-balanced", "epochs": 90, "lr": 0.2}
# Stage 2: the classifier alone, on classes drawn equally often.
CLASSIFIER = {"trains": "classifier", "sampler": "class-balanced", "epochs": 30, "lr": 0.2}

__all__ = ["CLASSIFIER", "REPRESENTATION", "Method"]
