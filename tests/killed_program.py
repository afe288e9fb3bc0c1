"""The program in a process that kills itself: ``python killed_program.py NUMBER COMMAND ...``.

It dies when it is about to call `os.fsync` for the NUMBER-th time. Every file of a run is synced twice: while it has a
temporary name, and when it has its own. So a number says at which write, before or after the file appears.
"""

import itertools
import os
import signal
import sys

from conftest import set_block_size

from bpinn.cli import main


def die_at(fatal):
    fsync, numbers = os.fsync, itertools.count(1)

    def fsync_or_die(handle):
        if next(numbers) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(handle)

    os.fsync = fsync_or_die


if __name__ == "__main__":
    die_at(int(sys.argv.pop(1)))
    set_block_size(10)
    main()
