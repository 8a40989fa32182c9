"""The paper from its first line to its last; equations are counted as its source numbers them."""


def equations(*numbers: int) -> tuple[str, ...]:
    return tuple(f"equation-{number}" for number in numbers)


SECTIONS: dict[str, tuple[str, ...]] = {
    "3 Wrapped Cauchy distributed angular softmax": equations(1, 2),
    "3.1 Wrapped Normal kernels": (
        *equations(3),
        "figure-1",
        *equations(4, 5),
        "theorem-1",
        *equations(6),
        "corollary-1.1",
    ),
    "3.2 Approximation by a wrapped Cauchy": (
        *equations(7, 8, 9),
        "theorem-2",
        "theorem-3",
        "figure-2",
    ),
    "3.3 Large margin, and optimisation": (
        *equations(10, 11),
        "theorem-4",
        *equations(12),
        "figure-3",
        *equations(13),
        "algorithm-1",
    ),
    "4.2 Wrapped Normal against wrapped Cauchy, one ρ against one per class": ("table-1",),
    "4.3 Optimisation of w_ρ": (
        "table-2",
        "initialisation-spread",
        "figure-4",
        "figure-5",
        "label-awareness",
    ),
    "4.4 Comparison with other methods": ("table-3", "table-4", "tail-and-head", "table-totals"),
    "A.1 Proof of Theorem 1": equations(*range(14, 22)),
    "A.2 Proof of Corollary 1.1": equations(*range(22, 27)),
    "A.3 Proof of Theorem 2": equations(*range(27, 37)),
    "A.4 Proof of Theorem 3": equations(*range(37, 45)),
    "A.5 Proof of Theorem 4": (*equations(*range(45, 52)), "figure-6"),
    "B.1 Settings": ("table-5",),
    "B.2 Number of epochs": ("table-6",),
    "B.3 Class-wise ρ": ("figure-7",),
    "B.4 Sampler of the second stage": ("table-7",),
    "B.5 Published numbers": ("table-8",),
}
