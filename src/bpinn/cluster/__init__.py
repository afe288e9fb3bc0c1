"""More than one machine: chains, simulations and sweeps on the workers of `dask.distributed`.

`connection` connects to a cluster or starts one; `arithmetic` is what workers must agree on with this process;
`worker` is what runs there; `chains` is the scheduler of a run's blocks, and `each` applies a function to many items.
"""

import queue
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bpinn.cluster import worker
from bpinn.cluster.chains import Workers as Workers
from bpinn.cluster.connection import Cluster as Cluster
from bpinn.cluster.connection import check as check
from bpinn.cluster.connection import opened as opened


def each(cluster: Cluster, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Apply a function on the workers; yield the number of each item and its outcome as they come.

    The function is sent once. If the caller stops early, what is left is cancelled.
    """
    sent = cluster.send(function)
    cluster.on_each(worker.held, sent.digest, sent.future, name=sent.digest[:8])  # so that items go to all workers
    finished: queue.SimpleQueue[int] = queue.SimpleQueue()
    futures = []
    for number, item in enumerate(items):
        name = f"{sent.digest[:8]}-{id(finished):x}-{number}"
        futures.append(cluster.submit(worker.call, sent.digest, sent.future, item, name=name))
        futures[-1].add_done_callback(lambda _, number=number: finished.put(number))
    try:
        for _ in items:
            number = cluster.next(finished)
            yield number, cluster.result(futures[number])
    finally:
        if cluster.client.status == "running":
            cluster.client.cancel([future for future in futures if not future.done()])
        cluster.sent.clear()
