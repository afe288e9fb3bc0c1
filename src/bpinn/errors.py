"""The exceptions and warnings of bpinn, so that a caller can tell them from a bug."""


class InputError(ValueError):
    """An invalid problem, setting or call; the message says how to fix it."""


class DamagedError(InputError):
    """A bpinn file that is truncated or was modified; the files it was built from may still be intact."""


class BpinnWarning(UserWarning):
    """Valid input that is probably not what was intended."""
