"""A draft of a problem file from a data file: `bpinn new NAME --from readings.csv`.

The draft has what can be seen in the file: coordinates, ranges, readings and their scatter. The equation is left to the
user, in a place that `bpinn check` names.
"""

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bpinn.data_files.numbers import codes_for_missing
from bpinn.data_files.table import name_of
from bpinn.errors import InputError
from bpinn.expressions import PLACEHOLDER
from bpinn.problem_file.rows import listed, written
from bpinn.recognition import Seen, known, look
from bpinn.scatter import scatter

SMOOTH = 0.01  # of the range of readings: the noise of readings without visible scatter


def write_draft(source: Path, folder: Path, order: str | None = None) -> tuple[list[Path], list[str]]:
    """Write a problem file for a data file, and a copy of it, into a new folder; return them and what was seen."""
    seen = look(source, order)
    text, said = _text(seen, source.name)
    if seen.groups is not None:
        column, count = name_of(seen.groups.column), len(seen.groups.values)
        said += [
            f"{count} groups in {column!r} ({listed(seen.groups.values)}): the draft takes the first",
            f'to run all of them: bpinn sweep {folder / "problem.toml"} --over "where.{column}=*"',
        ]
    if folder.exists():
        raise InputError(f"{folder}: already exists; give another name")
    try:
        folder.mkdir(parents=True)
        (folder / "problem.toml").write_text(text, encoding="utf-8")
        shutil.copyfile(source, folder / source.name)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return [folder / "problem.toml", folder / source.name], said


# --- the text ---


def _text(seen: Seen, source: str) -> tuple[str, list[str]]:
    """The problem file, and what was seen, as sentences."""
    numbers = seen.numbers()
    said = [*seen.table.notes]
    title = Path(source).stem.replace("_", " ").capitalize()
    lines = [f"title = {_quoted(title)}", "", "[domain]"]
    for c, columns in seen.coordinates.items():
        reached = numbers[c] if seen.longest is None or c != "t" else np.array([0.0, seen.longest])
        low, high = _range(known(reached), from_zero=seen.clock is not None and c == "t")
        what = f"{seen.clock}" if seen.clock is not None and c == "t" else f"column {' '.join(columns)}"
        if c == "t" and seen.clock is not None and seen.longest is not None:
            what = f"{seen.clock.unit} since the first reading of each group"
        lines.append(f"{c} = [{low:.12g}, {high:.12g}]".ljust(24) + f" # {what}")
        said.append(
            f"{c} is the coordinate in {' '.join(columns)!r}" + (f": {what}" if seen.clock and c == "t" else "")
        )
    if seen.clock is not None:
        start = str(seen.clock).split(" since ")[1]
        lines += ["", "[time]", f'unit = "{seen.clock.unit}"']
        lines += [f'start = "{start}"'] if seen.longest is None else ["# without start, time begins with each group"]
        lines += [f'dates = "{seen.order}"'] if seen.order else []
    for name in seen.values:
        lines += [
            "",
            f"[fields.{name}]",
            'surrogate = "gp"         # a smooth function; its length and size are inferred',
        ]
    lines += ["", *_equations(seen)]
    for name, header in seen.values.items():
        group, sentence = _sensors(seen, source, name, header, numbers)
        lines += ["", *group]
        said.append(sentence)
    lines += ["", "[inference]", "seed = 0", ""]
    if seen.ignored:
        said.append(f"not used: {', '.join(seen.ignored)}")
    return "\n".join(lines), said


def _range(values: np.ndarray, from_zero: bool) -> tuple[float, float]:
    """The range of a coordinate, rounded outwards to a hundredth of its size."""
    low, high = float(values.min()), float(values.max())
    step = 10.0 ** math.floor(math.log10(high - low or abs(high) or 1.0) - 1)
    low, high = (math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step)
    return (0.0 if from_zero else low), (high if high > low else low + step)


def _equations(seen: Seen) -> list[str]:
    c = "t" if "t" in seen.coordinates else next(iter(seen.coordinates))
    first = next(iter(seen.values))
    lines = [
        "[unknowns]               # the numbers to infer: a name and a prior each",
        '# k = { prior = "lognormal", log_mean = 0.0, log_sd = 1.0 }',
        "",
        "[equations]              # expressions that are zero, "
        f"such as {first}_{c} + k*{first}, where {first}_{c} is the derivative along {c}",
    ]
    laws = {name: "law" if len(seen.values) == 1 else f"law_{name}" for name in seen.values}
    lines += [f'{law} = "{PLACEHOLDER}"' for law in laws.values()]
    for law in laws.values():
        lines += ["", "[[physics]]", f'equation = "{law}"']
    return lines


def _sensors(
    seen: Seen, source: str, name: str, header: str, numbers: Mapping[str, np.ndarray]
) -> tuple[list[str], str]:
    columns = {c: found for c, found in seen.coordinates.items() if found != [c]}
    pairs = [f"{c} = {_listed(found)}" for c, found in columns.items()]
    pairs += [f"value = {_quoted(header)}"] if header != "value" else []
    noise_column = seen.noise is not None and seen.noise != "noise"
    pairs += [f"noise = {_quoted(str(seen.noise))}"] if noise_column else []
    lines = ["[[sensors]]", f'quantity = "{name}"', f"data = {_quoted(source)}"]
    lines += [f"{key} = {value}" for key, value in seen.reading.items()]
    lines += [f"columns = {{ {', '.join(pairs)} }}"] if pairs else []
    if seen.where[name]:
        rows = ", ".join(f"{_key(name_of(column))} = {written(value)}" for column, value in seen.where[name].items())
        others = f"  # the first of {len(seen.groups.values)}: {listed(seen.groups.values)}" if seen.groups else ""
        lines += [f"where = {{ {rows} }}{others}"]
    codes = codes_for_missing(numbers[name])
    readings = np.where(np.isin(numbers[name], codes), np.nan, numbers[name])
    used = [*(numbers[c] for c in seen.coordinates), readings]
    used += [seen.table.numbers(seen.noise)] if seen.noise is not None else []
    complete = np.all(np.isfinite(used), axis=0)
    part = seen.part(name)
    lacking, lacking_here = int(np.sum(~complete)), int(np.sum(~complete & part))
    how = f"missing = [{', '.join(f'{code:g}' for code in codes)}]" if codes else 'missing = "drop"'
    lines += [f"{how.ljust(24)} # cells are missing in {lacking} of {len(complete)} rows"] if lacking else []
    complete &= part
    said = f"{name} has {int(complete.sum())} readings in {name_of(header)!r}"
    chosen = [f"{name_of(column)} is {value}" for column, value in seen.where[name].items()]
    said += f" where {' and '.join(chosen)}" if chosen else ""
    said += f", without {lacking_here} row{'s' * (lacking_here > 1)} in which a cell is missing" if lacking_here else ""
    said += f" or holds {', '.join(f'{code:g}' for code in codes)}" if codes and lacking_here else ""
    if seen.noise is not None:
        return lines, f"{said}; the noise of each is in {name_of(seen.noise)!r}"
    at = np.array([numbers[c][complete] for c in seen.coordinates])
    values = readings[complete]
    guess = scatter(at, values)
    why = (
        f"neighbouring readings scatter by about {guess:.2g}"
        if guess
        else "1% of the range; too few readings to see it"
    )
    guess = guess or SMOOTH * float(np.ptp(values))
    lines += [
        f"# The noise: {why}. If you know it, write noise = {guess:.2g}",
        f'noise = {{ prior = "lognormal", log_mean = {math.log(guess):.3g}, log_sd = 0.5 }}',
    ]
    return lines, f"{said}; the noise: {why}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _quoted(text)


def _listed(columns: Sequence[str]) -> str:
    return _quoted(columns[0]) if len(columns) == 1 else f"[{', '.join(map(_quoted, columns))}]"
