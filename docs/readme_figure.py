"""Writes docs/overview.png, the figure that the code of the README draws: python docs/readme_figure.py"""

import contextlib
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def code() -> str:
    """The one block of Python in the README."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    return block


if __name__ == "__main__":
    with contextlib.chdir(ROOT / "docs"):
        exec(compile(code(), "README.md", "exec"), {})
