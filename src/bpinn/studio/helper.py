"""Another process that reads problem files for the studio, so that nothing in them can bring the server down."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from bpinn.errors import InputError

LARGEST_ANSWER = 2**26  # bytes
START = 300.0  # seconds that a worker may take to start, on a machine that is busy


def python(*arguments: str) -> list[str]:
    """A call of Python that does not import from the folder it runs in, which may hold files of other people."""
    return [sys.executable, "-P", *arguments]


class Helper:
    """Answers requests, one after the other, in a worker process that is started when needed, and again if it dies."""

    def __init__(self, root: Path):
        self.root = root
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def ask(self, what: str, seconds: float, **arguments: Any) -> Any:
        """The worker's answer; `InputError` is its own, or says that it took too long or died."""
        async with self._turn:
            try:
                async with asyncio.timeout(START):
                    process = await self._started()
                async with asyncio.timeout(seconds):
                    answer = await _asked(process, {"what": what, **arguments})
            except TimeoutError:
                await self.close()
                raise InputError(f"{what}: stopped after {seconds:.0f} s; make the problem smaller") from None
            except (OSError, ValueError, asyncio.IncompleteReadError):
                await self.close()
                raise InputError(f"{what}: the process that reads problems has ended; try again") from None
            except asyncio.CancelledError:  # the page was closed; half an answer must not reach the next request
                await self.close()
                raise
        if "refused" in answer:
            raise InputError(answer["refused"])
        return answer["answer"]

    async def _started(self) -> asyncio.subprocess.Process:
        """The worker, once it is ready: it says so when it has imported what it needs."""
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *python("-m", "bpinn.studio.worker"), cwd=self.root, limit=LARGEST_ANSWER,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            assert self._process.stdout is not None
            await self._process.stdout.readuntil(b"\n")
        return self._process

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _asked(process: asyncio.subprocess.Process, request: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    await process.stdin.drain()
    return json.loads(await process.stdout.readuntil(b"\n"))
