"""Makes and reads custom_ops.yaml, which names the kernel of each out variant."""

from __future__ import annotations

from collections.abc import Iterable

NAMESPACE = "muladd"


def out_variants(schemas: Iterable[str]) -> list[str]:
    """The schemas that an exported program calls: exporting replaces every operator by its out variant."""
    return [schema for schema in schemas if schema.partition("(")[0].endswith(".out")]


def yaml_text(schemas: Iterable[str]) -> str:
    """custom_ops.yaml for these schemas."""
    entries = []
    for schema in out_variants(schemas):
        kernel = schema.partition("(")[0].replace(".", "_")
        entries.append(
            f"- func: {NAMESPACE}::{schema}\n"
            "  kernels:\n"
            "    - arg_meta: null\n"
            f"      kernel_name: muladd_executorch::{kernel}\n"
        )
    return "\n".join(entries)


def names_in(yaml: str) -> tuple[str, ...]:
    """The operators of a text that :func:`yaml_text` made: ``"muladd::muladd.out"``."""
    lines = (line.removeprefix("- func: ") for line in yaml.splitlines() if line.startswith("- func: "))
    return tuple(line.partition("(")[0] for line in lines)
