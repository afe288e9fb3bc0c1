"""`bpinn studio`: a page on this machine on which a problem is stated, run, watched and compared.

`folder.py` says what the studio's folder holds, `processes.py` starts runs as processes of their own, `helper.py` and
`worker.py` let another process read problem files, `guard.py` refuses requests that do not come from the page, `app.py`
has the answers to requests, and `static/` the page. The files are the program's own: a folder with a problem file, its
data and its runs.
"""

import contextlib
import os
import socket
import webbrowser
from collections.abc import Iterator
from html import escape
from pathlib import Path

from bpinn.errors import InputError

LOOPBACK = "127.0.0.1"
OPENER = "open-studio.html"


def serve(folder: Path, port: int, browser: bool) -> None:
    """Serve the studio of a folder on the loopback interface until Ctrl-C."""
    try:
        import uvicorn

        from bpinn.studio.app import Studio  # which needs Starlette and tomlkit
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("uvicorn", "starlette", "tomlkit"):
            raise
        raise InputError(
            f"studio: the package {error.name} is missing; install it with `pip install 'bpinn[studio]'`"
        ) from None
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; create it, or give another for the studio's problems")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, port))
            listening.listen()  # a browser that is faster than the server waits for it
        except OSError as error:
            raise InputError(
                f"--port {port}: cannot be used: {error.strerror}; give another, or leave it out"
            ) from None
        studio = Studio(folder, listening.getsockname()[1])
        print(f"Studio of {folder.resolve()}: {studio.address}", flush=True)
        print("The address contains the key to it: do not pass it on. Ctrl-C ends the studio and stops its runs.")
        settings = uvicorn.Config(
            studio.app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none",
            lifespan="on", timeout_graceful_shutdown=2,
        )  # fmt: skip
        opening = opened(folder, studio.address) if browser else contextlib.nullcontext()
        with opening, contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again once it has shut down
            uvicorn.Server(settings).run(sockets=[listening])
        for run in studio.stopped:
            print(f"Stopped; resume with: bpinn resume {run}")


@contextlib.contextmanager
def opened(folder: Path, address: str) -> Iterator[None]:
    """Open an address in the browser by a file that only this user can read: others see the arguments of processes.

    The file is in the studio's own folder, where browsers that may not read /tmp find it, and is removed at the end.
    """
    path = folder.resolve() / OPENER
    page = f'<!DOCTYPE html><title>bpinn studio</title><meta http-equiv="refresh" content="0; url={escape(address)}">'
    try:
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(handle, "w") as file:
            file.write(page)
    except OSError:  # a folder that cannot be written to; the address is printed
        yield
        return
    try:
        webbrowser.open(path.as_uri())
        yield
    finally:
        path.unlink(missing_ok=True)
