"""`snakemake --lint` without its one finding that does not apply here: python -m depthtime.interlock.lint"""

from __future__ import annotations

import re
import subprocess
import sys

ALLOWED = {"Specify a conda environment or container for each rule."}  # requirements.txt pins the environment


def findings(report: str) -> list[str]:
    """The findings in the text of `snakemake --lint` that are not allowed, a line each: where, what."""
    found, where = [], "workflow"
    for line in report.splitlines():
        if line.startswith("Lints for "):
            where = line.removeprefix("Lints for ").rstrip(":")
        title = re.match(r"    \* (.+):$", line)
        if title and title[1] not in ALLOWED:
            found.append(f"{where}: {title[1]}")
    return found


def main() -> int:
    done = subprocess.run([sys.executable, "-m", "snakemake", "--lint"], capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode and "Lints for" not in said:
        print(said, file=sys.stderr)
        return 1
    found = findings(said)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
