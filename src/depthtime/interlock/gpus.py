"""Which GPU a stage computes on: found without importing torch, taken for the time of the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from depthtime.paths import STATE

DRIVER = Path("/proc/driver/nvidia/gpus")
SLOTS = STATE / "gpus"


def visible_gpus() -> list[str]:
    """Names as CUDA_VISIBLE_DEVICES takes them: its entries where set, else those the NVIDIA driver lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    return [str(number) for number in range(len(list(DRIVER.iterdir())))] if DRIVER.is_dir() else []


@contextmanager
def one_gpu(device: str = "auto") -> Iterator[str | None]:
    """Take a GPU that no other stage of this workspace has and make it the only visible one; None without any, or
    when `device` (as params.yaml has it) is another kind.

    Call it before torch is imported. Snakemake starts no more such stages than there are GPUs; where a person starts
    one more, it waits for the first GPU.
    """
    names = visible_gpus() if device in {"auto", "cuda"} else []
    if not names:
        yield None
        return
    SLOTS.mkdir(parents=True, exist_ok=True)
    locks = {name: FileLock(SLOTS / f"{name.replace('/', '_')}.lock") for name in names}
    taken = next((name for name in names if _is_taken(locks[name])), None)
    if taken is None:
        taken = names[0]
        locks[taken].acquire()
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = taken
    try:
        yield taken
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
        locks[taken].release()


def _is_taken(lock: FileLock) -> bool:
    """Try to take a slot without waiting."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True
