"""What bpinn raises and warns with, so that a caller can tell our words from a bug."""


class InputError(ValueError):
    """A problem, a setting or a call that cannot be used; the message says how to mend it."""


class DamagedError(InputError):
    """A file of ours that was cut off or changed; what it was made from may still be there."""


class BpinnWarning(UserWarning):
    """Something that can be used but is probably not what was meant."""
