"""What the conformance kit's matrix says at the end of its output, which has a column for each of a few operators."""


def outcomes(output):
    """By operator, the outcomes of all subsystems from top to bottom."""
    lines = output.splitlines()
    head = next(i for i, line in enumerate(lines) if "coverage of" in line) + 1
    end = next(i for i, line in enumerate(lines) if line.startswith("ok: passed"))
    operators = lines[head].split()
    rows = [line.split()[-len(operators) :] for line in lines[head + 1 : end]]
    return {operator: [row[i] for row in rows] for i, operator in enumerate(operators)}
