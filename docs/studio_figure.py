"""Draw the figures of docs/studio.md: run a problem in the studio, with a browser, and take pictures of its page.

python docs/studio_figure.py
"""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from bpinn.templates import write_template

DOCS = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
A_RUN_TAKES = 900_000  # milliseconds, at most


def draw(address: str, out: Path) -> None:
    with sync_playwright() as playwright:
        found = next(path for name in BROWSERS if (path := shutil.which(name)))
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 800})
        page.set_default_timeout(A_RUN_TAKES)
        page.goto(f"{address}#/reaction")
        page.wait_for_selector(".verdict.good")
        page.wait_for_selector("text=Columns of probes.csv")
        page.screenshot(path=out / "studio.png")
        page.click("[data-key=run]")
        page.wait_for_selector("[data-key=open-report]")
        sd = page.get_by_label("sd")
        page.click("[data-key=tab-problem]")
        sd.nth(1).fill("0.2")
        page.keyboard.press("Enter")
        page.wait_for_selector("[data-key=save]:not([disabled])")
        page.click("[data-key=run]")
        page.wait_for_selector(".run h2 >> text=run-2")
        page.wait_for_selector("[data-key=open-report]")
        for run in ("run", "run-2"):
            page.check(f"[data-key=compare-{run}]")
        page.wait_for_selector(".comparison .chart svg")
        page.evaluate("document.activeElement.blur()")
        page.mouse.move(0, 0)
        page.screenshot(path=out / "studio_run.png", full_page=True)
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_template("inverse-1d", Path(folder) / "reaction")
        program = [sys.executable, "-P", "-m", "bpinn", "studio", folder, "--no-browser"]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as studio:
            assert studio.stdout is not None
            address = re.search(r"http://\S+", studio.stdout.readline())
            assert address is not None
            try:
                draw(address[0], DOCS)
            finally:
                studio.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
