"""Run the gallery and write docs/gallery.

    python gallery/build.py [NAME ...] [--again] [--pages-only]

Each entry runs in a process of its own. One that is finished is not run again unless its problem file, its data or
its ``run.py`` have changed; ``--again`` runs it anyway. The pages are written from the stored numbers, so a change of
a text needs no run.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # started as a file
    sys.path.insert(0, str(ROOT))

from gallery import pages
from gallery.shared import NUMBERS, entries, load, run, stored

DOCS = ROOT / "docs" / "gallery"
MOST_SECONDS = 420


def run_here(name: str, docs: Path = DOCS) -> None:
    entry = load(name)
    numbers, figure, thumbnail = run(entry)
    (docs / "thumbs").mkdir(parents=True, exist_ok=True)
    (docs / f"{name}.png").write_bytes(figure)
    (docs / "thumbs" / f"{name}.png").write_bytes(thumbnail)
    (entry.folder / NUMBERS).write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    parser.add_argument("--again", action="store_true", help="run entries whose numbers are up to date, too")
    parser.add_argument("--pages-only", action="store_true", help="run nothing")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    known = entries()
    for name in given.names:
        if name not in known:
            parser.error(f"{name}: not in the gallery; it has {', '.join(known)}")
    if given.here:
        run_here(given.names[0])
        return
    failed = []
    for name in [] if given.pages_only else given.names or known:
        if stored(load(name)) and not given.again:
            continue
        print(f"== {name}", flush=True)
        try:
            subprocess.run([sys.executable, __file__, name, "--here"], check=True, timeout=MOST_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            failed.append(f"{name}: {error}")
    pages.write([load(name) for name in known], DOCS)
    for line in failed:
        print(line, file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
