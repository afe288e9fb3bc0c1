"""Refuses requests that do not come from the studio's own page, before anything else sees them.

Every page in a browser, and every program on this machine, can send requests to its ports. So each request must name
this host and port (against DNS rebinding), come from this origin if it says where it comes from, and carry the token,
which only the person who started the studio knows.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

VIEW = "view"  # reports have addresses of their own
LARGEST_BODY, LARGEST_UPLOAD = 2 * 2**20, 200 * 2**20  # bytes; the latter as for data files of the program
LARGEST_HEAD = 2**15
UPLOADS = ("/upload", "/draft")
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report may be someone else's file: it gets an origin of its own, and reaches neither the studio nor the network.
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; img-src data:; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


class RefusedError(Exception):
    """A request that is not answered: a status and a sentence."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Keys:
    """The token of a studio, and the keys of its reports, which do not reveal it."""

    def __init__(self, token: str | None = None):
        self.token = secrets.token_urlsafe(24) if token is None else token

    def is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self.token.encode())

    def of_report(self, name: str, run: str) -> str:
        return hmac.new(self.token.encode(), f"{name}/{run}".encode(), hashlib.sha256).hexdigest()[:32]

    def is_of_report(self, key: str, name: str, run: str) -> bool:
        return secrets.compare_digest(key.encode(), self.of_report(name, run).encode())


class Guard:
    """An ASGI application that passes on what may be answered, with the token taken off its path."""

    def __init__(self, app: Any, keys: Keys, port: int):
        self.app, self.keys = app, keys
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        begun = False

        async def guarded_send(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                policy = REPORT_POLICY if scope["path"].startswith(f"/{VIEW}/") else PAGE_POLICY
                added = {**HEADERS, "content-security-policy": policy}
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in added.items())]
            await send(message)

        try:
            inner, limit = self._checked(scope)
            await self.app(inner, _limited(receive, limit), guarded_send)
        except RefusedError as refused:
            if begun:
                raise
            body = json.dumps({"error": str(refused)}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            headers += [(b"connection", b"close")]  # whatever is left of the request is not read
            await guarded_send({"type": "http.response.start", "status": refused.status, "headers": headers})
            await guarded_send({"type": "http.response.body", "body": body})

    def _checked(self, scope: Scope) -> tuple[Scope, int]:
        """The request with the token removed, and how long its body may be."""
        headers: dict[str, str] = {}
        if sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope["path"]) > LARGEST_HEAD:
            raise RefusedError(431, "the head of the request is too large")
        for name, value in scope["headers"]:
            key = name.decode("latin-1")
            if key in headers and key in ("host", "origin", "content-length", "content-type"):
                raise RefusedError(400, f"the header {key} is given twice")
            headers[key] = value.decode("latin-1")
        host, method = headers.get("host", ""), scope["method"]
        if host not in self.hosts:
            raise RefusedError(403, "this address does not belong to the studio; use the one that bpinn studio printed")
        if method not in ("GET", "POST"):
            raise RefusedError(405, f"the method {method:.10} is not supported")
        first, _, rest = scope["path"].removeprefix("/").partition("/")
        viewing = first == VIEW and method == "GET"
        origin = headers.get("origin")
        if origin is None and method == "POST":
            raise RefusedError(403, "the request does not say from which page it comes")
        if origin is not None and origin != f"http://{host}":
            raise RefusedError(403, "requests from other pages are refused")
        # A person may follow the address from anywhere, such as a terminal in the browser, and gets just the page.
        following = method == "GET" and not rest and headers.get("sec-fetch-dest") == "document"
        site = headers.get("sec-fetch-site", "none")
        if not viewing and not following and site not in ("same-origin", "none"):
            raise RefusedError(403, "requests from other pages are refused")
        if not viewing and not self.keys.is_token(first):
            raise RefusedError(403, "the token is missing or wrong; use the address that bpinn studio printed")
        path = scope["path"] if viewing else f"/{rest}"
        limit = LARGEST_UPLOAD if path.endswith(UPLOADS) else LARGEST_BODY
        try:
            length = int(headers.get("content-length", "0"))
        except ValueError:
            raise RefusedError(400, "the header content-length is not a number") from None
        if length > limit:
            raise RefusedError(413, f"the request is larger than {limit // 2**20} MiB")
        return {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}, limit


def _limited(receive: Receive, limit: int) -> Receive:
    """Ends a request whose body is longer than it may be, whatever its header says."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise RefusedError(413, f"the request is larger than {limit // 2**20} MiB")
        return message

    return limited
