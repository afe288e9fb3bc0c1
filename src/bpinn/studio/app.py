"""What the studio answers: the page, problems and their checks, data files, runs and their reports."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bpinn.errors import InputError
from bpinn.studio import folder as folders
from bpinn.studio.folder import Folder, MissingError
from bpinn.studio.guard import VIEW, Guard, Keys, RefusedError
from bpinn.studio.helper import Helper
from bpinn.studio.processes import Child, Processes
from bpinn.templates import TEMPLATES, write_template

KINDS = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png",
    ".csv": "text/plain",
}  # fmt: skip
STATIC = ("studio.css", "dom.js", "charts.js", "form.js", "runs.js", "studio.js", "icon.svg")
IN_A_LIST = ("state", "counted", "done", "most", "left", "result")  # of the progress of a run
PARTS_OF_A_REPORT = ("figures", "tables")
# Seconds that reading a problem may take, reading a large data file, and drawing from a prior or opening a result.
QUICK, FILES, SLOW = 30.0, 120.0, 300.0
Answer = Callable[[Request], Awaitable[Response]]


class Studio:
    """The studio of a folder, on a port of this machine."""

    def __init__(self, root: Path, port: int, token: str | None = None):
        self.folder = Folder(root.resolve())
        self.keys = Keys(token)
        self.processes = Processes(self.folder.root)
        self.quick, self.slow = Helper(self.folder.root), Helper(self.folder.root)
        self.outcomes: dict[tuple[str, str, float], Any] = {}
        self.stopped: list[str] = []
        self.address = f"http://127.0.0.1:{port}/{self.keys.token}/"
        problem, run = "/api/problems/{name}", "/api/problems/{name}/runs/{run}"
        routes = [
            Route("/", self.page),
            Route("/static/{file}", self.static),
            Route("/api/studio", self.overview),
            Route("/api/known", self.known),
            Route("/api/new", self.new, methods=["POST"]),
            Route("/api/draft", self.draft, methods=["POST"]),
            Route(problem, self.problem),
            Route(f"{problem}/save", self.save, methods=["POST"]),
            Route(f"{problem}/check", self.check, methods=["POST"]),
            Route(f"{problem}/edit", self.edit, methods=["POST"]),
            Route(f"{problem}/prior", self.prior, methods=["POST"]),
            Route(f"{problem}/estimate", self.estimate, methods=["POST"]),
            Route(f"{problem}/upload", self.upload, methods=["POST"]),
            Route(f"{problem}/data/{{file}}", self.columns),
            Route(f"{problem}/runs", self.runs),
            Route(f"{problem}/run", self.start, methods=["POST"]),
            Route(run, self.run),
            Route(f"{run}/about", self.about),
            Route(f"{run}/{{does:str}}", self.act, methods=["POST"]),
            Route(f"/{VIEW}/{{key}}/{{name}}/{{run}}/{{file:path}}", self.view),
        ]
        handlers: Any = {InputError: _refused, RefusedError: _cut_off, HTTPException: _unknown, Exception: _failed}
        app = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)
        app.router.redirect_slashes = False
        self.app = Guard(app, self.keys, port)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        for left in self.folder.root.glob(".upload-*"):  # of a studio that was killed
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
        warm = asyncio.create_task(_quietly(self.quick.ask("check", QUICK, path="problem.toml", text="")))
        try:
            yield
        finally:
            warm.cancel()
            self.stopped = await self.processes.close()
            await self.quick.close()
            await self.slow.close()

    # --- the page ---

    async def page(self, request: Request) -> Response:
        return _static("studio.html")

    async def static(self, request: Request) -> Response:
        if request.path_params["file"] not in STATIC:
            raise MissingError("there is no such file")
        return _static(request.path_params["file"])

    async def overview(self, request: Request) -> Response:
        problems = []
        for name in self.folder.problems():
            running = any(child.is_alive for child in self.processes.of(name).values())
            problems.append({"name": name, "runs": len(self.folder.runs(name)), "running": running})
        templates = {name: template.about for name, template in TEMPLATES.items()}
        return JSONResponse({"folder": self.folder.root.name, "problems": problems, "templates": templates})

    async def known(self, request: Request) -> Response:
        """What a form offers: priors with their parameters, surrogates, likelihoods, methods."""
        return JSONResponse(await self.quick.ask("known", QUICK))

    # --- problems ---

    async def new(self, request: Request) -> Response:
        given = await _json(request)
        folder = self.folder.free(given.get("name"))
        write_template(_text(given, "template"), folder)
        return JSONResponse({"name": folder.name})

    async def draft(self, request: Request) -> Response:
        """A new problem for an uploaded file of readings."""
        folder = self.folder.free(request.query_params.get("name"))
        scratch = self.folder.scratch()
        try:
            source = scratch / _data_name(request.query_params.get("file"))
            await _receive(request, source)
            paths = {"source": self._shown(source), "folder": self._shown(folder)}
            said = await self.quick.ask("draft", FILES, **paths)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return JSONResponse({"name": folder.name, **said})

    async def problem(self, request: Request) -> Response:
        name = request.path_params["name"]
        text = self.folder.text(name)
        data = self.folder.data(name)
        return JSONResponse({"name": name, "text": text, "revision": folders.revision(text), "data": data})

    async def save(self, request: Request) -> Response:
        given = await _json(request)
        name, text = request.path_params["name"], _text(given, "text")
        return JSONResponse({"revision": self.folder.save(name, text, _text(given, "revision"))})

    async def check(self, request: Request) -> Response:
        return await self._read(request, self.quick, "check", QUICK)

    async def edit(self, request: Request) -> Response:
        return await self._read(request, self.quick, "edit", QUICK)

    async def prior(self, request: Request) -> Response:
        return await self._read(request, self.slow, "prior", SLOW)

    async def estimate(self, request: Request) -> Response:
        return await self._read(request, self.slow, "estimate", SLOW)

    async def _read(self, request: Request, helper: Helper, what: str, seconds: float) -> Response:
        given = await _json(request)
        arguments: dict[str, Any] = {"text": _text(given, "text")}
        if what == "edit":
            if not isinstance(given.get("edits"), list):
                raise InputError("edits: expected a list")
            arguments["edits"] = given["edits"]
        path = self._shown(self.folder.problem(request.path_params["name"]) / folders.PROBLEM)
        return JSONResponse(await helper.ask(what, seconds, path=path, **arguments))

    def _shown(self, path: Path) -> str:
        return path.relative_to(self.folder.root).as_posix()

    # --- data files ---

    async def upload(self, request: Request) -> Response:
        """A data file, which is kept if the program can read it."""
        target = self.folder.new_data(request.path_params["name"], request.query_params.get("file"))
        scratch = self.folder.scratch()
        try:
            await _receive(request, scratch / target.name)
            seen = await self.quick.ask("look", FILES, path=self._shown(scratch / target.name))
            shutil.move(scratch / target.name, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return JSONResponse({"name": target.name, **seen})

    async def columns(self, request: Request) -> Response:
        name, file = request.path_params["name"], request.path_params["file"]
        if file not in [one["name"] for one in self.folder.data(name)]:
            raise MissingError(f"{name}: there is no data file {file!r:.80}")
        return JSONResponse(await self.quick.ask("look", FILES, path=self._shown(self.folder.problem(name) / file)))

    # --- runs ---

    async def runs(self, request: Request) -> Response:
        name = request.path_params["name"]
        there, children = self.folder.runs(name), self.processes.of(name)
        names = [*(run for run in reversed(children) if run not in there), *there]
        states = [self._state(name, run) for run in names]
        for state in states:
            state["progress"] = {key: state["progress"].get(key) for key in IN_A_LIST}
        return JSONResponse({"runs": states})

    async def start(self, request: Request) -> Response:
        name = request.path_params["name"]
        folder = self.folder.problem(name)
        run = self.folder.free_run(name, {r for r, child in self.processes.of(name).items() if child.is_alive})
        await self.processes.start(name, folder, run)
        return JSONResponse({"run": run})

    async def run(self, request: Request) -> Response:
        """The state of a run, with its progress or outcome."""
        name, run = request.path_params["name"], request.path_params["run"]
        state = self._state(name, run)
        if state["state"] in ("finished", "stopped") and not state["progress"]:  # another program has made it
            path = self.folder.run(name, run)
            key = name, run, path.stat().st_mtime
            if key not in self.outcomes:
                try:
                    self.outcomes[key] = await self.slow.ask("outcome", SLOW, run=self._shown(path))
                except InputError:  # no draws yet
                    self.outcomes[key] = {}
            state["progress"] = self.outcomes[key]
        return JSONResponse(state)

    async def about(self, request: Request) -> Response:
        """The settings and readings that a run was started with."""
        path = self.folder.run(request.path_params["name"], request.path_params["run"])
        return JSONResponse(await self.quick.ask("about", QUICK, run=self._shown(path)))

    def _state(self, name: str, run: str) -> dict[str, Any]:
        child = self.processes.children.get((name, run))
        path = self.folder.runs(name).get(run)
        if path is None and child is None:
            self.folder.run(name, run)  # which says that there is none
        return {
            "run": run,
            "exists": path is not None,
            "state": _state_of(path, child),
            "message": child.message if child is not None and (child.failed or child.is_alive or child.stops) else "",
            "failed": child is not None and child.failed,
            "stops": 0 if child is None or not child.is_alive else child.stops,
            "progress": {} if path is None else _progress(path),
            "log": [] if path is None else folders.last_words(path),
            "report": None if path is None or not folders.has_report(path) else self._report(name, run),
        }

    def _report(self, name: str, run: str) -> str:
        """The address of a report, relative to that of the page."""
        return f"../{VIEW}/{self.keys.of_report(name, run)}/{quote(name)}/{quote(run)}/{folders.REPORT}"

    async def act(self, request: Request) -> Response:
        name, run, does = (request.path_params[key] for key in ("name", "run", "does"))
        if does == "stop":
            self.processes.stop(name, run)
        elif does in ("resume", "report"):
            self.folder.writable_run(name, run)
            start = self.processes.resume if does == "resume" else self.processes.report
            await start(name, self.folder.problem(name), run)
        else:
            raise MissingError(f"{does!r:.40} is none of stop, resume, report")
        return JSONResponse(self._state(name, run))

    async def view(self, request: Request) -> Response:
        """A page or a file of a report."""
        key, name, run, file = (request.path_params[key] for key in ("key", "name", "run", "file"))
        first = file.split("/")[0]
        if not self.keys.is_of_report(key, name, run) or (file != folders.REPORT and first not in PARTS_OF_A_REPORT):
            raise MissingError("there is no such report")
        path = self.folder.inside(self.folder.run(name, run), file)
        kind = KINDS.get(path.suffix.lower())
        if kind is None:
            raise MissingError("there is no such report")
        return Response(path.read_bytes(), media_type=kind)


# --- states ---


def _state_of(path: Path | None, child: Child | None) -> str:
    if child is not None and child.is_alive:
        return "reporting" if child.does == "report" else "stopping" if child.stops else "running"
    if path is None:
        return "failed" if child is None or child.failed else "stopped"
    if folders.is_finished(path):
        return "finished"
    return "elsewhere" if folders.is_locked(path) else "stopped"


def _progress(run: Path) -> dict[str, Any]:
    """What the run last wrote about itself; the file may be anyone's, so the page trusts nothing in it."""
    path = run / folders.PROGRESS
    try:
        if path.is_symlink() or path.stat().st_size > folders.LARGEST_PROGRESS:
            return {}
        found = json.loads(path.read_bytes(), parse_constant=lambda _: None)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- requests and answers ---


def _static(name: str) -> Response:
    content = resources.files("bpinn.studio").joinpath("static", name).read_bytes()
    return Response(content, media_type=KINDS[Path(name).suffix])


async def _json(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "expected JSON")
    try:
        given = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise InputError("the request is not valid JSON") from None
    if not isinstance(given, dict):
        raise InputError("the request is not a JSON object")
    return given


def _text(given: dict[str, Any], key: str) -> str:
    value = given.get(key)
    try:
        if not isinstance(value, str):
            raise InputError(f"{key}: expected text")
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{key}: is not valid Unicode text") from None
    return value


def _data_name(name: Any) -> str:
    file = folders.check_name(name, "file")
    if Path(file).suffix.lower() not in folders.DATA:
        raise InputError(f"{file}: not a data file; expected one of {', '.join(folders.DATA)}")
    return file


async def _receive(request: Request, path: Path) -> None:
    if request.headers.get("content-type") != "application/octet-stream":
        raise HTTPException(415, "expected the bytes of a file")
    with path.open("xb") as file:
        async for chunk in request.stream():
            file.write(chunk)


async def _quietly(answer: Awaitable[Any]) -> None:
    """Let the worker start before it is needed; what it says does not matter."""
    with contextlib.suppress(InputError):
        await answer


async def _refused(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 404 if isinstance(error, MissingError) else 400)


async def _cut_off(request: Request, error: Exception) -> Response:
    """A body that turned out too long; what is left of it is not read."""
    assert isinstance(error, RefusedError)
    return JSONResponse({"error": str(error)}, error.status, {"connection": "close"})


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    """A bug, or a disk that is full: the server goes on."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return JSONResponse({"error": f"this failed: {said}"}, 500)
