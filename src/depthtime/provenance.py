"""Where and with what a number was made. No stage reads this."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("depthtime", "torch", "numpy", "torchdiffeq", "safetensors")


def describe_machine(device: str) -> dict[str, Any]:
    """Processor, versions, commit of the code and whether it was changed since."""
    status = _git("status", "--porcelain", "--", "src", "params.yaml", "dvc.yaml")
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "device": device,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if status is None else bool(status),
    }


def describe_hardware(device: str) -> dict[str, Any]:
    """What times depend on: processor, device, system, versions, threads there are; not the state of the code."""
    machine = describe_machine(device)
    kept = {key: machine[key] for key in ("cpu", "device", "system", "python", "packages")}
    return {**kept, "threads_available": machine["cores"]}


def cpu_name() -> str:
    """The processor's own name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    model = named.get("model name", platform.machine())
    numbers = [named[key] for key in ("cpu family", "model", "stepping") if key in named]
    return f"{model} ({'/'.join(numbers)})" if numbers else model


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
