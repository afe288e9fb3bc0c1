"""The exceptions and warnings of bpinn, so that a caller can tell them from a bug."""


class InputError(ValueError):
    """An invalid problem, setting or call; the message says how to fix it.

    Example:
        >>> import bpinn as bp
        >>> try:
        ...     bp.Problem(domain={"x": (1.0, 0.0)}, fields={"u": bp.MLP()})
        ... except bp.InputError as error:
        ...     print(error)
        domain: coordinate 'x' needs finite bounds with low < high, got (1, 0)
    """


class DamagedError(InputError):
    """A bpinn file that is truncated or was modified; the files it was built from may still be intact."""


class BpinnWarning(UserWarning):
    """Valid input that is probably not what was intended.

    Example:
        ``warnings.simplefilter("error", bp.BpinnWarning)`` makes each an error.
    """
