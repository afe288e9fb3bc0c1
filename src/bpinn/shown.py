"""How objects appear in notebooks: as HTML, made by `bpinn.report.cells`."""


class Shown:
    """What a notebook shows as HTML; a terminal prints it as text."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from bpinn.report.cells import html  # imported here because it imports this module, and matplotlib

        return html(self)
