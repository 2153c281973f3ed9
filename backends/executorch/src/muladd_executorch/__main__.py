"""``python -m muladd_executorch --cmake-dir | --library | --yaml``: where build systems find what the wheel ships."""

from __future__ import annotations

import argparse

from ._files import custom_ops_yaml, library, sdk_dir


def main() -> None:
    """Print the paths that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m muladd_executorch", description="Print where things are.")
    paths = {"cmake-dir": sdk_dir / "cmake", "library": library, "yaml": custom_ops_yaml}
    for name, path in paths.items():
        parser.add_argument(f"--{name}", dest="paths", action="append_const", const=path, help=f"print {path.name}")
    options = parser.parse_args()
    if not options.paths:
        parser.error("give at least one of " + ", ".join(f"--{name}" for name in paths))
    print(*options.paths, sep="\n")


if __name__ == "__main__":
    main()
