"""Why an implementation cannot take part."""


class UnavailableError(Exception):
    """Its message ends up in the notes of the report."""

    code = None  # caught here: no caller sees it
