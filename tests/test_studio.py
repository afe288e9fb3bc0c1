"""`bpinn studio`: a whole run driven by a browser, requests that it refuses, and edits that keep the file's layout."""

import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
import webbrowser
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from bpinn.errors import InputError
from bpinn.problem_file import read_problem
from bpinn.progress_file import ProgressFile, plain
from bpinn.run_folder import runs
from bpinn.run_folder.files import only_one
from bpinn.studio import OPENER, guard, helper, opened, processes, text_edits
from bpinn.studio.folder import LOCKS, Folder

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
SECRET = "a secret outside of the studio"
# A curve through a few readings: as little as can be run, stopped and resumed.
TINY = """title = "Drift of a balance"  # of the old one

[domain]
t = [0, 1]

[fields.u]
hidden = [4]

[unknowns]
k = { prior = "normal", mean = 0.0, sd = 1.0 }

[equations]
shifted = "u + k"

[[sensors]]
quantity = "shifted"
data = "readings.csv"  # from the log
noise = 0.1

[inference]
method = "hmc"
chains = 2
seed = 0
num_warmup = 100
num_draws = 3000
num_leapfrog = 4
"""
READINGS = "t,value\n" + "".join(f"{t:g},{0.3 * t:g}\n" for t in np.linspace(0, 1, 5))


@dataclass
class Studio:
    """A studio in a process of its own, and a client that can send it anything."""

    root: Path
    address: str
    process: subprocess.Popen

    @property
    def port(self):
        return int(re.search(r":(\d+)/", self.address)[1])

    @property
    def token(self):
        return self.address.rstrip("/").rpartition("/")[2]

    @property
    def own(self):
        return {
            "Host": f"127.0.0.1:{self.port}",
            "Origin": f"http://127.0.0.1:{self.port}",
            "Content-Type": "application/json",
        }

    def ask(self, method, path, body=None, headers=None, chunks=None):
        """Status, headers and JSON or text of the answer; a header that is None is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.putrequest(method, path.replace("TOKEN", self.token), skip_host=True, skip_accept_encoding=True)
            for name, value in (self.own | (headers or {})).items():
                for one in value if isinstance(value, list) else [value]:
                    if one is not None:
                        connection.putheader(name, one.replace("PORT", str(self.port)))
            body = json.dumps(body).encode() if isinstance(body, dict | list) else body
            if chunks is not None:
                connection.putheader("Transfer-Encoding", "chunked")
            elif body is not None and "Content-Length" not in (headers or {}):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            try:
                for chunk in chunks or ():
                    connection.send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                connection.send((body or b"") if chunks is None else b"0\r\n\r\n")
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before everything was sent
            answer = connection.getresponse()
            content = answer.read()
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            return answer.status, answer.headers, json.loads(content) if is_json else content.decode()
        finally:
            connection.close()

    def get(self, path):
        status, _, answer = self.ask("GET", f"/TOKEN/api/{path}")
        assert status == 200, answer
        return answer

    def post(self, path, body):
        return self.ask("POST", f"/TOKEN/api/{path}", body)[::2]


def new_problem(folder, text=TINY):
    folder.mkdir()
    (folder / "problem.toml").write_text(text)
    (folder / "readings.csv").write_text(READINGS)


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    """A studio whose folder holds what a hostile folder might: modules with the names of libraries, and links."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.csv").write_text(f"t,value\n0,1\n{SECRET}")
    (outside / "problem.toml").write_text(f'title = "{SECRET}"')
    root = tmp_path_factory.mktemp("studio")
    for name in ("numpy", "jax", "json", "bpinn"):
        (root / f"{name}.py").write_text(f"open({str(outside / 'imported')!r}, 'w')\nraise SystemExit(9)")
    new_problem(root / "drift")
    new_problem(root / "linked", TINY.replace("readings.csv", "link.csv"))
    (root / "linked" / "link.csv").symlink_to(outside / "secret.csv")
    (root / "link").symlink_to(outside, target_is_directory=True)
    (root / "shallow").mkdir()
    (root / "shallow" / "problem.toml").symlink_to(outside / "problem.toml")
    program = [sys.executable, "-P", "-m", "bpinn", "studio", str(root), "--no-browser"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+/\S+/", process.stdout.readline())[0]
        yield Studio(root, address, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert not (outside / "imported").exists()
        assert {path.name for path in outside.iterdir()} == {"secret.csv", "problem.toml"}
    finally:
        process.kill()
        process.wait()


# --- refused requests ---

CHECK = "/TOKEN/api/problems/drift/check"
HOSTILE = {
    "no token": (403, "GET", "/"),
    "no token, for an answer": (403, "GET", "/api/studio"),
    "a wrong token": (403, "GET", f"/{'A' * 32}/api/studio"),
    "a part of the token": (403, "GET", "/TOKENx/api/studio"),
    "the token elsewhere": (403, "GET", "/api/studio?token=TOKEN"),
    "the token after another part": (403, "GET", "/x/TOKEN/api/studio"),
    "another host": (403, "GET", "/TOKEN/api/studio", {"Host": "evil.example"}),
    "DNS rebinding": (403, "GET", "/TOKEN/api/studio", {"Host": "evil.example:PORT"}),
    "DNS rebinding with a name like ours": (403, "GET", "/TOKEN/api/studio", {"Host": "127.0.0.1.evil.example:PORT"}),
    "another port": (403, "GET", "/TOKEN/api/studio", {"Host": "127.0.0.1:1"}),
    "no port": (403, "GET", "/TOKEN/api/studio", {"Host": "127.0.0.1"}),
    "no host": (400, "GET", "/TOKEN/api/studio", {"Host": None}),
    "two hosts": (400, "GET", "/TOKEN/api/studio", {"Host": ["127.0.0.1:PORT", "evil.example"]}),
    "another origin": (403, "GET", "/TOKEN/api/studio", {"Origin": "https://evil.example"}),
    "no origin of its own": (403, "GET", "/TOKEN/api/studio", {"Origin": "null"}),
    "another scheme": (403, "GET", "/TOKEN/api/studio", {"Origin": "https://127.0.0.1:PORT"}),
    "a page on another port": (403, "POST", CHECK, {"Origin": "http://127.0.0.1:1"}, {"text": ""}),
    "our other name as origin": (403, "POST", CHECK, {"Origin": "http://localhost:PORT"}, {"text": ""}),
    "two origins": (400, "POST", CHECK, {"Origin": ["http://127.0.0.1:PORT", "https://evil.example"]}, {"text": ""}),
    "a change without an origin": (403, "POST", "/TOKEN/api/problems/drift/run", {"Origin": None}, {}),
    "a request across sites": (403, "GET", "/TOKEN/api/studio", {"Sec-Fetch-Site": "cross-site"}),
    "a request across ports": (403, "POST", CHECK, {"Sec-Fetch-Site": "same-site"}, {"text": ""}),
    "a form": (415, "POST", "/TOKEN/api/problems/drift/run".replace("run", "check"), {"Content-Type": "text/plain"}, b'{"text": ""}'),
    "PUT": (405, "PUT", CHECK, {}, {"text": ""}),
    "DELETE": (405, "DELETE", "/TOKEN/api/problems/drift"),
    "OPTIONS, before a request across origins": (405, "OPTIONS", CHECK),
    "TRACE": (405, "TRACE", "/TOKEN/"),
    "an invented method": (405, "BREW", "/TOKEN/"),
    "GET of what changes things": (405, "GET", "/TOKEN/api/problems/drift/run"),
    "POST of what does not": (405, "POST", "/TOKEN/api/studio", {}, {}),
    "no JSON": (400, "POST", CHECK, {}, b"{"),
    "JSON that is no object": (400, "POST", CHECK, {}, [1]),
    "JSON without a text": (400, "POST", CHECK, {}, {"text": 3}),
    "JSON nested without end": (400, "POST", CHECK, {}, b"[" * 100_000),
    "half a character": (400, "POST", CHECK, {}, b'{"text": "\\ud800"}'),
    "a huge body": (413, "POST", CHECK, {"Content-Length": str(10**12)}, b"{}"),
    "a negative length": (400, "POST", CHECK, {"Content-Length": "-1"}, b"{}"),
    "a length that is no number": (400, "POST", CHECK, {"Content-Length": "many"}, b"{}"),
    "a huge header": ((400, 431), "GET", "/TOKEN/api/studio", {"X-Long": "x" * 100_000}),
    "an unknown page": (404, "GET", "/TOKEN/etc/passwd"),
    "another file of the package": (404, "GET", "/TOKEN/static/..%2fapp.py"),
    "a path out of the package": (404, "GET", "/TOKEN/static/..%2f..%2f..%2f..%2fetc%2fpasswd"),
    "an unknown problem": (404, "GET", "/TOKEN/api/problems/nothing"),
    "a path instead of a problem": (404, "GET", "/TOKEN/api/problems/..%2foutside0"),
    "the folder above": (404, "GET", "/TOKEN/api/problems/.."),
    "a hidden folder": (404, "GET", "/TOKEN/api/problems/.git"),
    "a link to a problem": (404, "GET", "/TOKEN/api/problems/link"),
    "a link to a problem file": (404, "GET", "/TOKEN/api/problems/shallow"),
    "a link to a data file": (404, "GET", "/TOKEN/api/problems/linked/data/link.csv"),
    "a path instead of a data file": (404, "GET", "/TOKEN/api/problems/drift/data/..%2fproblem.toml"),
    "an unknown run": (404, "GET", "/TOKEN/api/problems/drift/runs/run-77"),
    "a path instead of a run": (404, "GET", "/TOKEN/api/problems/drift/runs/..%2f..%2frun"),
    "an unknown run to resume": (404, "POST", "/TOKEN/api/problems/drift/runs/run-77/resume", {}, {}),
    "nothing to stop": (400, "POST", "/TOKEN/api/problems/drift/runs/run-77/stop", {}, {}),
    "an unknown deed": (404, "POST", "/TOKEN/api/problems/drift/runs/run/delete", {}, {}),
    "a report without its key": (404, "GET", f"/view/{'0' * 32}/drift/run/report.html"),
    "a report by the token": (404, "GET", "/view/TOKEN/drift/run/report.html"),
    "an old revision": (400, "POST", "/TOKEN/api/problems/drift/save", {}, {"text": "x = 1", "revision": "0" * 16}),
    "edits that are no list": (400, "POST", "/TOKEN/api/problems/drift/edit", {}, {"text": TINY, "edits": "all"}),
    "an edit of nothing": (400, "POST", "/TOKEN/api/problems/drift/edit", {}, {"text": TINY, "edits": [{"do": "set", "path": []}]}),
    "an unknown template": (400, "POST", "/TOKEN/api/new", {}, {"name": "new", "template": "../templates"}),
}  # fmt: skip
NAMES = ["../evil", "/tmp/evil", "a/b", "a\\b", ".hidden", "", "x" * 70, "CON", "evil\n", "a..b", "drift", None, "\0"]
FILES = ["../evil.csv", "problem.toml", "evil.sh", "evil.py", ".csv", "readings.csv", "a/b.csv", "run"]


def tree(root):
    return {
        path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in sorted(root.rglob("*")) if not path.is_dir()
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_requests_are_refused(studio, name):
    before = tree(studio.root)
    status, method, path, *rest = HOSTILE[name]
    headers, body = (*rest, None, None)[:2]
    got, head, answer = studio.ask(method, path, body, headers)
    assert got in (status if isinstance(status, tuple) else (status,)), answer  # by the server itself, or by the guard
    if "x-frame-options" in head:  # not if the server itself could not make sense of the request
        assert len(answer["error"]) > 5
        assert head["content-security-policy"] in (guard.PAGE_POLICY, guard.REPORT_POLICY)
    assert SECRET not in str(answer)
    assert studio.token not in str(answer)
    assert tree(studio.root) == before
    assert [one["name"] for one in studio.get("studio")["problems"]] == ["drift", "linked"]


def test_a_body_without_a_length_is_cut_off(studio):
    chunks = [b"x" * 2**16] * (guard.LARGEST_BODY // 2**16 + 2)
    status, _, answer = studio.ask("POST", CHECK, chunks=chunks)
    assert (status, answer["error"]) == (413, "the request is larger than 2 MiB")


@pytest.mark.parametrize("name", NAMES)
def test_names_are_never_paths(studio, name):
    before = tree(studio.root)
    status, answer = studio.post("new", {"name": name, "template": "curve"})
    assert status == 400
    assert "expected letters" in answer["error"] or "already exists" in answer["error"]
    assert tree(studio.root) == before


@pytest.mark.parametrize("name", FILES)
def test_uploads_are_data_files_of_one_folder(studio, name):
    before = tree(studio.root)
    path = f"/TOKEN/api/problems/drift/upload?file={name.replace('/', '%2f')}"
    status, _, answer = studio.ask("POST", path, READINGS.encode(), {"Content-Type": "application/octet-stream"})
    assert status == 400, answer
    assert tree(studio.root) == before


def test_an_upgrade_to_a_web_socket_is_ignored(studio):
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGVzdA==",
    }
    assert studio.ask("GET", "/TOKEN/api/studio", headers=headers)[0] == 200  # an answer as to any GET, and no socket
    assert studio.ask("GET", "/", headers=headers)[0] == 403


def test_the_address_can_be_followed_from_anywhere(studio):
    """From a terminal in the browser, for example; but no other page can have it as an image or a frame."""
    across = {"Origin": None, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert studio.ask("GET", "/TOKEN/", headers=across | {"Sec-Fetch-Dest": "document"})[0] == 200
    assert studio.ask("GET", "/TOKEN/", headers=across | {"Sec-Fetch-Dest": "iframe"})[0] == 403
    assert studio.ask("GET", "/TOKEN/api/studio", headers=across | {"Sec-Fetch-Dest": "document"})[0] == 403


def test_the_token_is_in_no_argument(tmp_path, monkeypatch):
    """Other users of the machine see the arguments of a browser; they cannot read the file that it opens."""
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / OPENER).symlink_to(tmp_path / "elsewhere")
    seen = []
    monkeypatch.setattr(webbrowser, "open", seen.append)
    with opened(tmp_path, "http://127.0.0.1:1/token/"):
        assert seen == [(tmp_path / OPENER).as_uri()]
        assert 'url=http://127.0.0.1:1/token/"' in (tmp_path / OPENER).read_text()
        assert stat.S_IMODE((tmp_path / OPENER).lstat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
    assert (tmp_path / "elsewhere").read_text() == "kept"


def test_the_page_asks_nothing_of_the_network(studio):
    status, headers, page = studio.ask("GET", "/TOKEN/", headers={"Origin": None, "Content-Type": None})
    assert status == 200
    assert headers["content-security-policy"] == guard.PAGE_POLICY
    assert "unsafe" not in guard.PAGE_POLICY
    assert (headers["referrer-policy"], headers["cache-control"]) == ("no-referrer", "no-store")
    for name in re.findall(r'(?:src|href)="(static/[^"]*)"', page):
        status, headers, text = studio.ask("GET", f"/TOKEN/{name}", headers={"Origin": None})
        assert status == 200
        assert headers["x-content-type-options"] == "nosniff"
        for other in re.findall(r'from "\./([^"]*)"', text):
            assert studio.ask("GET", f"/TOKEN/static/{other}")[0] == 200
        assert "http" not in re.sub(r'"http://www\.w3\.org/[^"]*"', "", text)  # names of languages, not addresses
    assert re.findall(r"https?://", page) == []


def test_colours_have_contrast():
    """Text at least 4.5 to 1 and edges 3 to 1 against what they are on, in light and dark (WCAG 2, level AA)."""
    css = (Path(guard.__file__).parent / "static" / "studio.css").read_text()
    schemes = [
        dict(re.findall(r"--([\w-]+): #(\w+)", block)) for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    ]
    assert len(schemes) == 2

    def luminance(colour):
        whole = "".join(c * 2 for c in colour) if len(colour) == 3 else colour
        parts = [int(whole[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return np.dot(linear, [0.2126, 0.7152, 0.0722]) + 0.05

    on = {
        "page": ["ink", "soft"], "card": ["ink", "soft", "accent", "good", "care", "bad", "dot", "mean"],
        "tint": ["ink", "soft", "accent"], "accent": ["on-accent"], "good-tint": ["ink", "good"],
        "care-tint": ["ink", "care"], "bad-tint": ["ink", "bad"], "field": ["ink", "soft"],
    }  # fmt: skip
    for colours in schemes:
        for ground, texts in on.items():
            for text in texts:
                pair = sorted([luminance(colours[ground]), luminance(colours[text])])
                assert pair[1] / pair[0] > 4.5, (ground, text)
        edges = sorted([luminance(colours["card"]), luminance(colours["edge"])])
        assert edges[1] / edges[0] > 3


# --- what it says of a problem ---


def test_checks_are_those_of_the_program(studio, program, monkeypatch):
    """The same sentences as `bpinn check` in the studio's folder, also of what is not saved."""
    monkeypatch.chdir(studio.root)
    wrong = [
        TINY.replace("noise = 0.1\n", ""), TINY.replace("u + k", "u + q"), TINY.replace("u + k", "__import__('os')"),
        TINY.replace("[domain]", "[domain"), TINY.replace("readings.csv", "../../secret.csv"), "",
        TINY.replace("readings.csv", "/etc/passwd"), TINY.replace("num_draws", "num_draw"),
    ]  # fmt: skip
    saved = (studio.root / "drift" / "problem.toml").read_text()
    for text in wrong:
        (studio.root / "drift" / "problem.toml").write_text(text)
        expected = program("check", "drift/problem.toml")
        (studio.root / "drift" / "problem.toml").write_text(saved)
        monkeypatch.chdir(studio.root)
        status, answer = studio.post("problems/drift/check", {"text": text})
        assert (status, expected.returncode) == (200, 2)
        assert f"bpinn: {answer['message']}\n" == expected.stderr
    right = studio.post("problems/drift/check", {"text": TINY})[1]
    assert right["message"] is None
    assert "<math" in right["equations"][0]["math"]
    (readings,) = right["readings"]
    assert readings["values"] == [0, 0.075, 0.15, 0.225, 0.3]


def test_links_to_data_outside_are_refused(studio):
    text = (studio.root / "linked" / "problem.toml").read_text()
    answer = studio.post("problems/linked/check", {"text": text})[1]
    assert "is outside the folder of the problem file" in answer["message"]
    assert studio.get("problems/linked")["data"] == [{"name": "readings.csv", "bytes": len(READINGS)}]


def test_files_of_a_laboratory_are_read_as_by_the_program(studio):
    table = "Logger 7\n# calibrated\nt;T [K];note\ns;;\n0;291,5;on\n10;290,1;\n20;289,3;\n30;288,9;off\n"
    path, head = "/TOKEN/api/problems/drift/upload?file=", {"Content-Type": "application/octet-stream"}
    status, _, seen = studio.ask("POST", f"{path}logger.csv", table.encode(), head)
    assert (status, [one["name"] for one in seen["columns"]], seen["rows"]) == (200, ["t", "T", "note"], 4)
    (studio.root / "drift" / "logger.csv").unlink()
    before = tree(studio.root)
    status, _, answer = studio.ask("POST", f"{path}broken.csv", b"t,value\n", head)
    assert (status, answer["error"]) == (400, "broken.csv: the file has no readings")
    assert tree(studio.root) == before  # what cannot be read is not kept
    status, _, made = studio.ask("POST", "/TOKEN/api/draft?name=cup&file=logger.csv", table.encode(), head)
    try:
        assert (status, made["name"]) == (200, "cup")
        assert any("4 readings" in line for line in made["said"])
        assert (
            "the equation is not filled in yet"
            in studio.post("problems/cup/check", {"text": studio.get("problems/cup")["text"]})[1]["message"]
        )
    finally:
        shutil.rmtree(studio.root / "cup")


def test_without_the_extra_it_says_what_to_install(program, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = program("studio", "--no-browser")
    assert done.returncode == 2
    assert (
        done.stderr == "bpinn: studio: the package uvicorn is missing; install it with `pip install 'bpinn[studio]'`\n"
    )


def test_a_studio_needs_a_folder_and_a_port(program, studio):
    assert "there is no such folder" in program("studio", "nowhere", "--no-browser").stderr
    assert "cannot be used" in program("studio", "--no-browser", "--port", studio.port).stderr


# --- edits ---

EDITS = {
    "a number": ([{"do": "set", "path": ["sensors", 0, "noise"], "value": 0.2}], lambda c: c["sensors"][0].update(noise=0.2)),
    "a prior": ([{"do": "set", "path": ["unknowns", "k"], "value": {"prior": "uniform", "low": 0, "high": 1}}], lambda c: c["unknowns"].update(k={"prior": "uniform", "low": 0, "high": 1})),
    "a part of a prior": ([{"do": "set", "path": ["unknowns", "k", "sd"], "value": 2.5}], lambda c: c["unknowns"]["k"].update(sd=2.5)),
    "a new field": ([{"do": "set", "path": ["fields", "v"], "value": {"surrogate": "gp"}}], lambda c: c["fields"].update(v={"surrogate": "gp"})),
    "more readings": ([{"do": "set", "path": ["sensors", 1], "value": {"quantity": "u", "values": 0.0, "noise": 0.1}}], lambda c: c["sensors"].append({"quantity": "u", "values": 0.0, "noise": 0.1})),
    "the first exact equation": ([{"do": "set", "path": ["physics", 0], "value": {"equation": "shifted"}}], lambda c: c.update(physics=[{"equation": "shifted"}])),
    "no readings": ([{"do": "remove", "path": ["sensors", 0]}], lambda c: c.pop("sensors")),
    "no unknown": ([{"do": "remove", "path": ["unknowns", "k"]}], lambda c: c["unknowns"].clear()),
    "another name": ([{"do": "rename", "path": ["fields", "u"], "value": "w"}], lambda c: c.update(fields={"w": c["fields"]["u"]})),
    "columns": ([{"do": "set", "path": ["sensors", 0, "columns"], "value": {"value": "T [K]"}}], lambda c: c["sensors"][0].update(columns={"value": "T [K]"})),
    "two of them": ([{"do": "set", "path": ["title"], "value": "Q \"x\""}, {"do": "set", "path": ["domain", "x"], "value": [0.0, 1.0]}], lambda c: (c.update(title='Q "x"'), c["domain"].update(x=[0.0, 1.0]))),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_edits_change_their_key_and_nothing_else(name):
    edits, expected = EDITS[name]
    content = tomllib.loads(TINY)
    expected(content)
    text = text_edits.edited(TINY, edits)
    assert tomllib.loads(text) == content
    comments = {line.partition("#")[2] for line in TINY.splitlines() if "#" in line}
    kept = {line.partition("#")[2] for line in text.splitlines() if "#" in line}
    assert comments - kept <= ({" from the log"} if name == "no readings" else set())


def test_edits_undone_give_the_text_back():
    there = text_edits.edited(TINY, [{"do": "set", "path": ["sensors", 0, "noise"], "value": 0.25}])
    assert text_edits.edited(there, [{"do": "set", "path": ["sensors", 0, "noise"], "value": 0.1}]) == TINY


@pytest.mark.parametrize(
    "edit",
    [
        {"do": "set", "path": ["sensors", 7, "noise"], "value": 1},
        {"do": "burn", "path": ["title"]},
        {"do": "rename", "path": ["fields", "u"], "value": "a b"},
        {"path": ["x"] * 20, "do": "remove"},
        {"do": "remove", "path": [True]},
        3,
    ],
)
def test_edits_that_fit_nothing_are_refused(edit):
    with pytest.raises((InputError), match="cannot be applied"):
        text_edits.edited(TINY, [edit])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (TINY.replace("noise = 0.1\n", ""), "[[sensors]]"),
        (TINY.replace("u + k", "u + q"), 'shifted = "u + q"'),
        (TINY.replace("num_draws = 3000", "num_draw = 3000"), "num_draw = 3000"),
        (TINY.replace("t = [0, 1]", "t = [1, 0]"), "t = [1, 0]"),
        (TINY.replace("sd = 1.0 }", "sd = -1.0 }"), 'k = { prior = "normal", mean = 0.0, sd = -1.0 }'),
        (TINY.replace("[domain]", "[domain"), "[domain"),
    ],
)
def test_messages_are_traced_to_their_line(text, line, tmp_path):
    new_problem(tmp_path / "drift")
    with pytest.raises(InputError) as refused:
        read_problem(tmp_path / "drift" / "problem.toml", text=text)
    found = text_edits.line_of(text, str(refused.value))
    assert text.splitlines()[found - 1] == line


# --- processes ---


def test_a_worker_that_dies_or_hangs_is_replaced(tmp_path, monkeypatch):
    code = "import json, sys, time\nprint('ready', flush=True)\nfor line in sys.stdin:\n" + (
        "    what = json.loads(line)['what']\n    if what == 'die': sys.exit(1)\n    if what == 'hang': time.sleep(600)\n"
        "    print(json.dumps({'answer': what} if what != 'no' else {'refused': 'it is wrong'}), flush=True)"
    )
    monkeypatch.setattr(helper, "python", lambda *_: [sys.executable, "-c", code])

    async def talk():
        worker = helper.Helper(tmp_path)
        try:
            assert await worker.ask("check", 60) == "check"
            with pytest.raises(InputError, match="it is wrong"):
                await worker.ask("no", 60)
            with pytest.raises(InputError, match="has ended; try again"):
                await worker.ask("die", 60)
            with pytest.raises(InputError, match="stopped after 1 s"):
                await worker.ask("hang", 1)
            assert await worker.ask("check", 60) == "check"
        finally:
            await worker.close()

    asyncio.run(talk())


def test_a_run_that_crashes_leaves_a_message(tmp_path, monkeypatch):
    """Processes that die, that say why they end, and that are asked to stop before they listen."""
    listening = (
        "import pathlib, signal, sys, time\nsignal.signal(signal.SIGINT, lambda *_: (print('bpinn: kept', file=sys.stderr), sys.exit(130)))\n"
        "pathlib.Path(sys.argv[-1]).write_text('{}')\nfor _ in range(600): time.sleep(0.1)"
    )
    codes = {
        "die": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "wrong": "import sys; print('bpinn: a sentence', file=sys.stderr); sys.exit(2)",
        "stop": listening,
    }
    monkeypatch.setattr(
        processes, "python", lambda *a: [sys.executable, "-c", codes[a[a.index("--out") + 1].split("/")[1]], *a]
    )

    async def watch():
        found = processes.Processes(tmp_path)
        for run in codes:
            (tmp_path / run).mkdir()
            await found.start("p", tmp_path, run)
        with pytest.raises(InputError, match="already running"):
            await found.start("p", tmp_path, "stop")
        found.stop("p", "stop")
        for child in found.children.values():
            await child.reading
        with pytest.raises(InputError, match="is not running"):
            found.stop("p", "stop")
        assert await found.close() == []
        return {run: (child.failed, child.message) for run, child in found.of("p").items()}

    ended = asyncio.run(watch())
    assert ended["wrong"] == (True, "a sentence")
    assert ended["stop"] == (False, "kept")
    assert ended["die"] == (True, "the process ended with code -9")


def test_closing_stops_what_does_not_want_to(tmp_path, monkeypatch):
    deaf = "import signal, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', file=sys.stderr, flush=True); time.sleep(600)"
    monkeypatch.setattr(processes, "python", lambda *_: [sys.executable, "-c", deaf])
    monkeypatch.setattr(processes, "GRACE", (0.1, 0.1))

    async def close():
        found = processes.Processes(tmp_path)
        await found.report("p", tmp_path, "run")
        child = found.children["p", "run"]
        while not child.said:
            await asyncio.sleep(0.05)
        stopped = await found.close()
        await child.reading
        return stopped, child.process.returncode

    assert asyncio.run(close()) == (["p/run"], -signal.SIGKILL)


@pytest.mark.skipif(not LOCKS.exists(), reason="only Linux lists locks")
def test_runs_of_other_programs_are_seen(studio):
    run = studio.root / "linked" / "run"
    run.mkdir()
    (run / "manifest.json").write_text("{}")
    try:
        with only_one(run):
            assert studio.get("problems/linked/runs")["runs"][0]["state"] == "elsewhere"
        assert studio.get("problems/linked/runs")["runs"][0]["state"] == "stopped"
    finally:
        shutil.rmtree(run)


def test_links_in_a_run_keep_the_program_out(tmp_path):
    """A log that is a link would be written to, wherever it leads."""
    new_problem(tmp_path / "drift")
    folder = Folder(tmp_path)
    (tmp_path / "drift" / "run" / "tables").mkdir(parents=True)
    (tmp_path / "drift" / "run" / "manifest.json").write_text("{}")
    assert folder.writable_run("drift", "run") == tmp_path / "drift" / "run"
    (tmp_path / "elsewhere").write_text(SECRET)
    (tmp_path / "drift" / "run" / "tables" / "u.csv").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="holds symbolic links"):
        folder.writable_run("drift", "run")
    for file in ("tables/u.csv", "../problem.toml", "tables/../../problem.toml", "tables//u.csv", "", "tables", "a\0b"):
        with pytest.raises(InputError, match="there is no file"):
            folder.inside(tmp_path / "drift" / "run", file)


def test_progress_is_a_file(tmp_path):
    """Every version of it is whole JSON; the last has what the run found."""
    new_problem(tmp_path / "drift")
    path, seen = tmp_path / "progress.json", []
    started = runs.start(tmp_path / "drift", None, ["inference.num_draws=200"])
    writer = ProgressFile(path)

    def report(progress):
        writer._written = -np.inf  # at every block
        writer._judged = -np.inf
        writer(progress)
        seen.append(json.loads(path.read_text()))

    result = started.go(report, print, None)
    assert [one["stage"] for one in seen] == sorted((one["stage"] for one in seen), key=["warm-up", "draws"].index)
    last = seen[-1]
    assert (last["done"], last["most"]) == (200, 200)
    assert last["left"] == 0
    (k,) = last["unknowns"]
    np.testing.assert_allclose([k["mean"], k["sd"]], [result.draws("k").mean(), result.draws("k").std()], rtol=1e-5)
    (u,) = last["bands"]
    columns = [i for i, name in enumerate(result.functional_names) if name.startswith("u at")]
    np.testing.assert_allclose(u["mean"], result.functionals[..., columns].mean((0, 1)), rtol=1e-5, atol=1e-6)
    assert np.all(np.array(u["low"]) < np.array(u["mean"]))
    assert plain({"a": np.array([1.0, np.nan, np.inf]), 1: np.int64(2)}) == {"a": [1.0, None, None], "1": 2}


# --- a whole run, by a browser ---


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no browser")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser, studio):
    """A page on which nothing may go wrong, and which may ask nothing of any other host."""
    page, wrong = browser.new_page(viewport={"width": 1200, "height": 900}), []
    page.set_default_timeout(180_000)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda asked: None if asked.url.startswith(studio.address) else wrong.append(asked.url))
    yield page
    assert wrong == []
    page.close()


def test_a_whole_run_in_a_browser(studio, page):
    """State, check, mend, run, stop, resume, report, compare; and a reload shows the same."""
    page.goto(studio.address)
    page.click("a >> text=drift")
    page.wait_for_selector(".verdict.good")
    assert page.inner_text("h1") == "Drift of a balance"
    assert page.locator(".equation math").count() == 1
    assert page.locator(".charts circle.dot").count() == 5

    # text: an error with the program's own sentence, at its line; it cannot be run
    page.click("text=Text")
    page.fill("#text", TINY.replace("u + k", "u + q"))
    page.wait_for_selector(".verdict.bad")
    assert "equations.shifted, column 5: the name 'q' is not declared" in page.inner_text("#message")
    assert page.inner_text(".numbers .wrong").strip() == str(TINY.splitlines().index('shifted = "u + k"') + 1)
    assert page.is_disabled("[data-key=run]")
    page.fill("#text", TINY)
    page.wait_for_selector(".verdict.good")

    # form: with the keyboard alone; the file keeps its comments
    page.click("text=Form")
    sd = page.get_by_label("sd").last
    sd.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("0.2")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-key=save]:not([disabled])")
    page.keyboard.press("Control+S")
    page.wait_for_selector("text=Saved")
    assert (studio.root / "drift" / "problem.toml").read_text() == TINY.replace("noise = 0.1", "noise = 0.2")

    # run, and stop it at once
    page.click("[data-key=run]")
    page.click("[data-key=do-stop]")
    page.wait_for_selector("[data-key=do-resume]")
    run = studio.root / "drift" / "run"
    assert not (run / "result.npz").exists()
    assert "stopped" in page.inner_text("#run-view .badge")

    # what a file says of a run is text, whoever wrote it
    told = {
        "state": "running",
        "counted": "draws 50 of 3000",
        "rhat": 1.2,
        "ess": 20,
        "unknowns": [{"name": "<img src=x onerror=alert(1)>", "mean": 1, "sd": 0.1, "trace": [[1, "x", None]]}],
        "bands": [
            {"name": "u", "at": {"t": [0, 1]}, "mean": [0, 1], "low": [-1, 0], "high": [1, 2]},
            {"name": 3, "at": None},
        ],
    }
    (run / "progress.json").write_text(json.dumps(told))
    page.reload()
    page.wait_for_selector("text=<img src=x onerror=alert(1)>")
    assert page.locator("#run-view img").count() == 0
    assert page.inner_text(".facts dd.bad >> nth=0") == "1.200"

    # resume, to the end and its report
    page.click("[data-key=do-resume]")
    page.wait_for_selector("[data-key=open-report]")
    assert (run / "result.npz").exists()
    unknown = page.inner_text(".unknown .value")
    assert re.fullmatch(r"−?\d\.\d+ ± \d\.\d+", unknown)
    with page.expect_popup() as opened:
        page.click("[data-key=open-report]")
    report = opened.value
    assert report.inner_text("h1") == "Drift of a balance"
    assert studio.token not in report.url
    assert report.evaluate("origin") == "null"  # an origin of its own, from which the studio cannot be reached
    report.close()
    page.reload()
    page.wait_for_selector("[data-key=open-report]")
    assert page.inner_text(".unknown .value") == unknown

    # compare with another run, which a terminal might have made
    shutil.copytree(run, studio.root / "drift" / "run-2")
    (studio.root / "drift" / "run-2" / "progress.json").unlink()
    page.reload()
    page.check("[data-key=compare-run]")
    page.check("[data-key=compare-run-2]")
    page.wait_for_selector(".comparison")
    assert page.locator(".comparison td", has_text=unknown).count() == 2
    assert "The problem files of these runs are the same." in page.inner_text(".comparison")

    # on a phone nothing is wider than the window
    page.set_viewport_size({"width": 390, "height": 844})
    for tab in ("problem", "runs"):
        page.click(f"[data-key=tab-{tab}]")
        page.wait_for_selector({"problem": ".verdict.good", "runs": ".unknown"}[tab])
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_program_understands_the_files(studio, program):
    """After the browser: what the studio wrote is a run like any other."""
    run = studio.root / "drift" / "run"
    if not (run / "result.npz").exists():
        pytest.skip("there was no browser to make a run")
    compared = json.loads(program("compare", run, "--json").stdout)
    assert compared[0]["verdict"] in ("good", "care", "bad")
    assert program("resume", run, "--json").returncode in (0, 3)
    assert os.access(run / "report.html", os.R_OK)
