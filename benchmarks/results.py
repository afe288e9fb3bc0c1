"""The results file: each script adds its part, and an interrupted write leaves the old file intact."""

import json
import os
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DEFAULT = HERE / "results.json"


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def save(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(part, path)


def merge(path: Path, **parts: Any) -> None:
    save(path, load(path) | parts)
