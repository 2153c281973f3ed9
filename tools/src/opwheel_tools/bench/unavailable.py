"""Why a peer cannot take part."""


class UnavailableError(Exception):
    """Its message ends up in the notes of the report."""
