"""The table of unknowns, with the health of the run below it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bpinn import convergence, diagnostics
from bpinn.labelled import ends_of
from bpinn.methods import Method
from bpinn.monitor import Monitor
from bpinn.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

NOT_TRUSTED = "Not to be trusted, for the reasons below:"
DISAGREES = "Forward check: the equations, solved with these unknowns, disagree:"


class Summary(Shown):
    """A table of the unknowns, one row each, and the health of the run; prints as text.

    ``summary["mean"]``, ``summary.loc["k", "mean"]`` and ``summary.table`` (a pandas DataFrame) give the numbers.
    ``warning`` is printed above them, ``solutions`` below, if there are several. ``forward`` is what a forward check
    found to disagree, if one was made.
    """

    def __init__(
        self,
        table: "pd.DataFrame",
        about: str,
        health: diagnostics.Diagnosis,
        warning: str = "",
        solutions: str = "",
        forward: Sequence[str] = (),
    ):
        self.table, self.about, self.health, self.warning = table, about, health, warning
        self.solutions, self.forward = solutions, tuple(forward)

    def __getitem__(self, column: str) -> "pd.Series":
        return self.table[column]

    @property
    def loc(self) -> Any:
        return self.table.loc

    def __str__(self) -> str:
        disagrees = "\n".join(["", DISAGREES, *(f"  - {reason}" for reason in self.forward)]) if self.forward else ""
        notes = f"{self.about}\n{self.health}{disagrees}{self.solutions}"
        if self.table.empty:
            return notes
        titles, formats = self.formats(self.table)
        above = f"{self.warning}\n" if self.warning else ""
        return above + self.table.to_string(header=titles, formatters=formats) + "\n" + notes

    __repr__ = __str__

    @staticmethod
    def formats(table: "pd.DataFrame") -> tuple[list[str], list[Callable[[float], str]]]:
        """The title of each column, and how its numbers are written."""
        titles, formats = {"rhat": "R-hat", "ess": "ESS"}, {"rhat": "{:.3f}".format, "ess": "{:.0f}".format}
        return [titles.get(c, c) for c in table], [formats.get(c, "{:.4g}".format) for c in table]


def table_of(monitor: Monitor, functionals: np.ndarray, method: Method, p: float = 0.95) -> "pd.DataFrame":
    """Mean, sd, central interval, R-hat and ESS of each unknown, inferred noise and inferred scale."""
    import pandas as pd  # imported here because it takes a third of a second

    values, count = monitor.numbers_of(functionals), len(monitor.numbers)
    flat = values.reshape(values.shape[0] * values.shape[1], count).astype(float)
    columns = {"mean": flat.mean(axis=0)}
    if method.has_spread:
        ends = np.quantile(flat, [0.5 - p / 2, 0.5 + p / 2], axis=0)
        columns |= {"sd": flat.std(axis=0, ddof=1)} | dict(zip(ends_of(p), ends, strict=True))
    else:
        columns |= {"sd": np.full(count, np.nan)}
    if method.is_markov:
        columns |= {"rhat": convergence.rhat_of(values) if count else np.zeros(0)}
        columns |= {"ess": convergence.ess_of(values) if count else np.zeros(0)}
    return pd.DataFrame(columns, index=list(monitor.number_names))
