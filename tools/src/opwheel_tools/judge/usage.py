"""What is said where there is nothing to judge."""


class UsageError(Exception):
    """There is nothing to judge; the message says what to write."""

    code = "OPWHEEL-E097"
