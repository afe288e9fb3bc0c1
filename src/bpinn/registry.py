"""Registered classes, which files refer to by name: fields, kernels, methods and likelihoods, also of other packages.

A file contains class names, never code: only registered classes can be built from it. A package registers its
classes with `register` when it is imported; bpinn imports it automatically if it declares an entry point in the group
``bpinn``.
"""

import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, TypeVar

from bpinn.errors import BpinnWarning, InputError

GROUP = "bpinn"  # of entry points
Class = TypeVar("Class", bound=type)


class Registry:
    """Classes of one kind, such as fields, by their name in problem files and by their class name."""

    _asked = False  # whether the entry points of other packages have been imported

    def __init__(self, kind: str):
        self.kind = kind
        self._by_name: dict[str, type] = {}
        self._by_class: dict[str, type] = {}

    def add(self, cls: type, name: str) -> None:
        for known, key in ((self._by_name, name), (self._by_class, cls.__name__)):
            other = known.get(key, cls)
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise InputError(
                    f"register: the {self.kind} {key!r} already exists ({other.__module__}.{other.__qualname__}); "
                    f"give {cls.__module__}.{cls.__qualname__} another name"
                )
        self._by_name[name] = self._by_class[cls.__name__] = cls

    def __iter__(self) -> Iterator[str]:
        """The names used in problem files."""
        self._import_others()
        return iter(self._by_name)

    def named(self, name: str) -> type | None:
        """The class with this name in problem files."""
        return self._found(self._by_name, name)

    def stored(self, name: str) -> type | None:
        """The class with this class name, as stored in result files."""
        return self._found(self._by_class, name)

    def name_of(self, cls: type) -> str | None:
        """The name of a class in problem files; None if it is not registered."""
        return next((name for name, known in self._by_name.items() if known is cls), None)

    def _found(self, known: dict[str, type], name: str) -> type | None:
        if name not in known:
            self._import_others()
        return known.get(name)

    @classmethod
    def _import_others(cls) -> None:
        if not Registry._asked:
            Registry._asked = True
            for entry in metadata.entry_points(group=GROUP):
                try:
                    entry.load()
                except Exception as error:  # errors in another package must not break bpinn
                    warnings.warn(
                        f"the package of the entry point {entry.name!r} cannot be imported "
                        f"({type(error).__name__}: {error}); its classes are not available",
                        BpinnWarning,
                        stacklevel=2,
                    )


def register(name: str) -> Callable[[Class], Class]:
    """Register your own class, so that files can refer to it: a `Field`, a kernel, a `Method` or a `Likelihood`.

    ``name`` is its name in problem files. Result files store the class name and the dataclass fields. See
    docs/extending.md.

    Example:
        >>> from dataclasses import dataclass
        >>> import bpinn as bp
        >>> @bp.register("heavy_tailed")
        ... @dataclass(frozen=True)
        ... class HeavyTailed(bp.likelihoods.StudentT):
        ...     dof: float = 2.0
    """

    def add(cls: Class) -> Class:
        registry: Any = getattr(cls, "registry", None)
        if not isinstance(registry, Registry):
            raise InputError(
                f"register: {cls.__name__} is not a bp.Field, bp.Method, bp.Likelihood or kernel; derive it from one"
            )
        registry.add(cls, name)
        return cls

    return add
