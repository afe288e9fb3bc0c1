"""Numbers reported in the paper, for comparison."""

# k: mean and sd by problem, noise and method (Tables 1 to 3, and the text for the PINN).
K: dict[tuple[str, float], dict[str, tuple[float, float | None]]] = {
    ("inverse_reaction_1d", 0.01): {
        "HMC": (0.705, 5.75e-3), "VI": (0.708, 4.01e-3), "dropout 1%": (0.714, 4.38e-3), "dropout 5%": (0.669, 2.02e-2),
        "KL-HMC": (0.706, 5.63e-3), "KL-DNF": (0.705, 2.63e-3), "PINN": (0.705, None),
    },
    ("inverse_reaction_1d", 0.1): {
        "HMC": (0.665, 5.63e-2), "VI": (0.775, 3.58e-2), "dropout 1%": (0.746, 6.51e-3), "dropout 5%": (0.633, 6.45e-3),
        "KL-HMC": (0.694, 5.82e-2), "KL-DNF": (0.709, 5.21e-2), "PINN": (0.591, None),
    },
    ("inverse_reaction_2d", 0.01): {
        "HMC": (1.003, 5.75e-3), "VI": (0.895, 2.83e-3), "dropout 1%": (1.050, 2.00e-3), "dropout 5%": (1.168, 3.04e-3),
    },
    ("inverse_reaction_2d", 0.1): {
        "HMC": (0.978, 4.98e-2), "VI": (1.116, 3.45e-2), "dropout 1%": (1.020, 4.21e-3), "dropout 5%": (1.169, 4.15e-3),
    },
}  # fmt: skip

# Minutes on two CPUs (Intel Xeon E5-2643), 1D inverse problem.
MINUTES = {"PINN": 10.0, "HMC": 20.0, "KL-HMC": 4.0, "KL-DNF": 24 * 60.0}
