"""What goes wrong in an export."""


class ExportError(Exception):
    """A library cannot be exported; the text says why, and what to do."""

    code = "OPWHEEL-E099"
