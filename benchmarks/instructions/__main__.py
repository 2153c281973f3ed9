"""Counts instructions and compares them with the committed record: 0 no more than recorded, 1 more, or not comparable.

python -m benchmarks.instructions [--update]
"""

from __future__ import annotations

import argparse
import sys

from . import record
from .callgrind import CountingError, Counts, count


def _show(counts: Counts, before: Counts) -> None:
    print(f"{'set':9} {'statement':26} {'recorded':>9} {'now':>9}")
    for instruction_set, named in counts.items():
        for name, now in named.items():
            old = before.get(instruction_set, {}).get(name)
            change = "" if not old else f"{now / old - 1:+8.1%}"
            print(f"{instruction_set:9} {name:26} {'-' if old is None else old:>9} {now:>9} {change}")


def main() -> int:
    """Count, show, compare or record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=record.__doc__)
    parser.add_argument("--update", action="store_true", help="make this run the record")
    options = parser.parse_args()
    before = record.load(record.PATH) if record.PATH.exists() else None
    here = record.environment()
    different = [] if before is None else record.differences(before, here)
    try:
        counts = count()
    except CountingError as error:
        print(error, file=sys.stderr)
        return 1
    _show(counts, {} if before is None else before.counts)
    for difference in different:
        print(f"note: another environment: {difference}")
    if options.update:
        record.Record(here, record.TOLERANCE, counts).save(record.PATH)
        return 0
    if before is None or different:
        print(f"there is nothing to compare with; record this environment's counts with {record.UPDATE}")
        return 1
    findings = record.compare(before, counts)
    print("\n".join(findings) or f"no statement takes over {before.tolerance:.0%} more instructions than recorded")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
