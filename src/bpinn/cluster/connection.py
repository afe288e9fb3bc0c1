"""Clusters of Dask workers: connecting to one, starting one on this machine, and checking who computes as we do."""

import contextlib
import hashlib
import json
import logging
import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from bpinn.cluster import arithmetic
from bpinn.errors import InputError

CONNECT_SECONDS, START_SECONDS = 20, 120
PLENTY = 1e9  # of the resource that admitted workers have: any number of tasks at once
QUIET_SECONDS = 15.0  # after which it is said that there is no worker
KINDS = "an address such as 'tcp://node1:8786', a scheduler file, 'local:2' for two processes here, or a dask Client"
MISSING = "cluster= needs Dask; install it with: pip install 'bpinn[dask]'"
# Settings of Dask for local workers and their scheduler: on one machine what it measures of itself, a hundred times a
# second, is work that the same cores do not do for chains. Idle workers are found sooner instead.
QUIETER = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "2s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.scheduler.work-stealing-interval": "100ms",
}
Say = Callable[[str], None]


def check(cluster: Any, where: str = "infer: cluster") -> None:
    """Refuse what cannot be a cluster, before anything is started."""
    try:
        import distributed
    except ImportError:
        raise InputError(f"{where.partition(':')[0]}: {MISSING}") from None
    if isinstance(cluster, Cluster | distributed.Client) or hasattr(cluster, "get_client"):
        return
    if not isinstance(cluster, str | Path) or not str(cluster):
        raise InputError(f"{where}: got {cluster!r}; expected {KINDS}")
    text = str(cluster)
    if text.startswith("local:"):
        _count(text, where)
    elif "://" not in text and not _is_address(text) and not Path(text).is_file():
        raise InputError(f"{where}: {text!r} is neither an address nor an existing file; expected {KINDS}")


def _count(text: str, where: str) -> int:
    number = text.removeprefix("local:")
    if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= 1024:
        raise InputError(f"{where}: {text!r} must be local: and a number of processes from 1 to 1024, as in local:2")
    return int(number)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit() and not Path(text).exists()


@contextlib.contextmanager
def opened(cluster: Any, say: Say, where: str = "infer: cluster") -> Iterator["Cluster"]:
    """Connect to a cluster, or start one; what was started here is ended at the end."""
    if isinstance(cluster, Cluster):
        yield cluster
        return
    check(cluster, where)
    with contextlib.ExitStack() as stack:
        client = _client(cluster, where, stack)
        found = Cluster(client, say)
        stack.callback(found.release)
        found.admit()
        yield found


def _client(cluster: Any, where: str, stack: contextlib.ExitStack) -> Any:
    from distributed import Client

    if isinstance(cluster, Client):
        if cluster.status != "running":
            raise InputError(f"{where}: the client is {cluster.status}; connect it again")
        if cluster.asynchronous:
            raise InputError(f"{where}: the client is asynchronous; give one without asynchronous=True")
        return cluster
    if hasattr(cluster, "get_client"):
        return stack.enter_context(contextlib.closing(cluster.get_client()))
    text = str(cluster)
    if text.startswith("local:"):
        return stack.enter_context(_local(_count(text, where), where))
    given: dict[str, Any] = {"scheduler_file": text} if Path(text).is_file() else {"address": text}
    if "scheduler_file" in given:
        try:
            json.loads(Path(text).read_bytes())["address"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{where}: {text} is not a scheduler file; `dask scheduler` writes one") from None
    try:
        client = Client(**given, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = str(error).split("\n")[0] or type(error).__name__
        raise InputError(f"{where}: there is no scheduler at {text} ({why}); start one with `dask scheduler`") from None
    return stack.enter_context(contextlib.closing(client))


@contextlib.contextmanager
def _local(count: int, where: str) -> Iterator[Any]:
    """A scheduler in this process, and worker processes of one thread each.

    Workers are programs of their own: a forked process with JAX deadlocks, and a spawned one would import the user's
    script again. They have a session of their own, so that Ctrl-C does not reach them, and end with the scheduler.
    """
    import dask
    from distributed import Client, LocalCluster

    options: Any = {"n_workers": 0, "processes": False, "dashboard_address": None, "silence_logs": logging.CRITICAL}
    with (
        dask.config.set(QUIETER),
        LocalCluster(**options, protocol="tcp", host="127.0.0.1") as cluster,
        Client(cluster, set_as_default=False, direct_to_workers=True) as client,
        tempfile.TemporaryDirectory(prefix="bpinn-workers-", ignore_cleanup_errors=True) as folder,
        (Path(folder) / "log").open("w+b") as log,
    ):
        command = [
            sys.executable, "-m", "dask", "worker", client.scheduler.address, "--nworkers", str(count),
            "--nthreads", "1", "--no-dashboard", "--death-timeout", str(START_SECONDS), "--local-directory", folder,
        ]  # fmt: skip
        where_to: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        process = subprocess.Popen(command, env=_environment(), start_new_session=True, **where_to)
        try:
            begun = time.monotonic()
            while len(client.nthreads()) < count:
                if process.poll() is not None or time.monotonic() - begun > START_SECONDS:
                    log.seek(0)
                    last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
                    raise InputError(f"{where}: the processes of local:{count} do not start: {last}")
                time.sleep(0.05)
            yield client
        finally:
            _end(process)


def _end(process: subprocess.Popen) -> None:
    """End a process and those that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number) if hasattr(os, "killpg") else process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            break
    with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
        os.killpg(process.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """That of this process, with its module path and its folder of compiled programs."""
    set_here = {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error",
    }
    for name, value in QUIETER.items():
        set_here["DASK_" + name.upper().replace(".", "__").replace("-", "_")] = str(value)
    for name in ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"):
        value = jax.config.values.get(name)
        if value is not None:
            set_here[name.upper()] = str(value)
    return {**os.environ, **set_here}


@dataclass
class Sent:
    """Something that workers hold: its hash, and the task whose outcome it is."""

    digest: str
    future: Any


@dataclass
class Cluster:
    """A connection. Tasks run on admitted workers only: those whose arithmetic is that of this process."""

    client: Any
    say: Say
    resource: str = ""
    sent: dict[str, Sent] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # why, by address
    token: str = field(default_factory=lambda: secrets.token_hex(4))

    # --- who may take part ---

    def admit(self) -> None:
        """Let every worker, also those that come later, check its arithmetic; `InputError` if all are refused."""
        wanted = arithmetic.description()
        settings = arithmetic.flags(), arithmetic.blas_threads(), wanted
        self.resource = f"bpinn-{hashlib.sha256(repr(settings).encode()).hexdigest()[:12]}"
        topic = self.resource
        self.client.subscribe_topic(topic, lambda event: self._refuse(*event[1]))
        self.client.register_plugin(_admission(self.resource, *settings), name=self.resource)
        verdicts = self.client.run(_reader(self.resource), on_error="return")
        for address, why in verdicts.items():
            if why:
                self._refuse(address, str(why))
        if verdicts and len(self.refused) >= len(verdicts):
            first = next(f"{address}: {why}" for address, why in self.refused.items())
            self.client.unregister_worker_plugin(self.resource)
            raise InputError(
                f"cluster: none of its {len(verdicts)} workers computes as this process does; worker {first}"
            )

    def _refuse(self, address: str, why: str) -> None:
        if address not in self.refused:
            self.refused[address] = why
            self.say(f"cluster: worker {address} is not used: {why}")

    @property
    def workers(self) -> list[str]:
        """Addresses of the workers that are present and not refused."""
        return [address for address in self.client.nthreads() if address not in self.refused]

    # --- tasks ---

    def send(self, content: Any) -> Sent:
        """Hand something to all workers that will need it, once."""
        import cloudpickle

        pickled = cloudpickle.dumps((arithmetic.flags(), content))
        digest = hashlib.sha256(pickled).hexdigest()
        if digest not in self.sent:
            # A task rather than scattered data: if the workers that hold it die, it is run again.
            future = self._submitted(bytes, pickled, key=f"bpinn-sent-{digest[:16]}-{self.token}")
            self.sent[digest] = Sent(digest, future)
        return self.sent[digest]

    def submit(
        self, function: Callable[..., Any], *arguments: Any, name: str, priority: int = 0, **options: Any
    ) -> Any:
        """A future of a pure function; futures among the arguments stand for their results."""
        key = f"bpinn-{function.__name__}-{self.token}-{name}"
        options |= {"key": key, "priority": priority, "resources": {self.resource: 1}}
        return self._submitted(function, *arguments, **options)

    def _submitted(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            return self.client.submit(function, *arguments, pure=False, **options)

    def on_each(self, function: Callable[..., Any], *arguments: Any, name: str) -> None:
        """Run a function on every worker, and wait until it has ended there or the worker has; errors are ignored."""
        finished: queue.SimpleQueue[str] = queue.SimpleQueue()
        left: dict[str, Any] = {}
        for number, address in enumerate(self.workers):
            left[address] = self.submit(function, *arguments, name=f"{name}-{number}", priority=1, workers=[address])
            left[address].add_done_callback(lambda _, address=address: finished.put(address))
        while left and self.client.status == "running":
            try:
                left.pop(finished.get(timeout=1.0))
            except queue.Empty:
                present = self.workers
                left = {address: future for address, future in left.items() if address in present}

    def result(self, future: Any) -> Any:
        """What a task returned; what it raised is raised here, and a sentence if the cluster lost it."""
        (found,) = self.results([future])
        return found

    def results(self, futures: Sequence[Any]) -> list[Any]:
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        try:
            return self.client.gather(list(futures))
        except KilledWorker as error:
            raise InputError(
                f"cluster: several workers died while they ran the same task ({str(error).partition(' on ')[0]}); do "
                "they have enough memory? Their logs say more"
            ) from None
        except (CancelledError, TimeoutError, OSError) as error:
            raise InputError(
                f"cluster: the connection to the scheduler was lost ({type(error).__name__}); start it again and "
                "repeat the call, which resumes a run with out="
            ) from None

    def next(self, finished: "queue.SimpleQueue[Any]") -> Any:
        """Wait for an item of a queue that callbacks of futures fill."""
        quiet = 0.0
        while True:
            try:
                return finished.get(timeout=0.5)
            except queue.Empty:
                if self.client.status != "running":
                    raise InputError("cluster: the connection to the scheduler was lost; start it again") from None
                quiet += 0.5
                if quiet >= QUIET_SECONDS:
                    quiet = -20 * QUIET_SECONDS
                    if not self.workers:
                        self.say("cluster: there is no worker; waiting for one (Ctrl-C stops)")

    def release(self) -> None:
        """Free what workers hold for this connection."""
        self.sent.clear()
        with contextlib.suppress(Exception):
            self.client.unsubscribe_topic(self.resource)


def _reader(name: str) -> Callable[..., str]:
    # A function without a name to import, so that a worker without bpinn can run it.
    return lambda dask_worker: getattr(dask_worker, "bpinn_verdicts", {}).get(name, "it did not check its arithmetic")


def _admission(resource: str, flags: dict[str, Any], threads: int, wanted: dict[str, str]) -> Any:
    """A plugin with which every worker checks its arithmetic when it starts.

    Its class is local, so that it is sent by value: a worker without bpinn, or with another one, can run it too.
    """
    import asyncio
    import os

    from distributed import Status, WorkerPlugin

    def judge(cores: int) -> str:
        # Before JAX starts. Blocks are to run in as many threads of XLA as this worker has: more than there are blocks
        # would share the work of each, which takes 40% more processor time and no less time.
        os.environ.setdefault("PJRT_NPROC", str(cores))
        try:
            from bpinn.cluster.worker import admitted
        except ImportError as error:
            return f"bpinn cannot be imported there ({error}); install the same version"
        try:
            return admitted(flags, threads, wanted)
        except Exception as error:
            return f"its check failed ({type(error).__name__}: {error})"

    class Admission(WorkerPlugin):
        idempotent = True

        async def setup(self, worker: Any) -> None:
            why = await asyncio.get_running_loop().run_in_executor(None, judge, worker.state.nthreads)
            worker.bpinn_verdicts = getattr(worker, "bpinn_verdicts", {}) | {resource: why}
            if why:
                worker.log_event(resource, (worker.address, why))
                return
            await worker.set_resources(**{resource: PLENTY})
            # Tasks that wait for the resource are looked at again when a worker starts to run.
            worker.status = Status.paused
            worker.status = Status.running

    return Admission()
