"""What bpinn raises and warns with, so that a caller can tell our words from a bug."""


class InputError(ValueError):
    """A problem, a setting or a call that cannot be used; the message says how to mend it."""


class BpinnWarning(UserWarning):
    """Something that can be used but is probably not what was meant."""
