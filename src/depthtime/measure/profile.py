"""Which kinds of operations the time goes to, under torch's profiler."""

from __future__ import annotations

from collections.abc import Callable

import torch

PROFILED_GOES = 5
OPERATIONS = {  # kinds of operations, by the names that torch gives them
    "matrix products": {"mm", "addmm", "bmm", "baddbmm", "addmm_", "baddbmm_", "linear"},
    "attention": {
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_softmax", "_softmax_backward_data",
    },
    "GELU": {"gelu", "gelu_backward", "sigmoid", "sigmoid_"},
    "norms": {"native_layer_norm", "native_layer_norm_backward"},
    "loss": {"_log_softmax", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward"},
    "additions and products": {"add", "add_", "mul", "mul_", "sub", "sub_", "_foreach_add_", "sum"},
    "copies and fills": {"copy_", "clone", "fill_", "zero_", "empty", "empty_like", "zeros", "zeros_like", "resize_"},
    "optimiser and gradient norm": {"_fused_adam_", "_foreach_norm", "linalg_vector_norm", "stack"},
    "embedding": {"embedding", "embedding_dense_backward", "index_select"},
    "other": set(),
}  # fmt: skip


def profile(go: Callable[[], object]) -> dict[str, float]:
    """Share of the processor time of some goes by kind of operation (OPERATIONS)."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        for _ in range(PROFILED_GOES):
            go()
    times = dict.fromkeys(OPERATIONS, 0.0)
    for event in found.key_averages():
        name = event.key.removeprefix("aten::")
        kind = next((kind for kind, names in OPERATIONS.items() if name in names), "other")
        times[kind] += event.self_cpu_time_total
    total = sum(times.values())
    return {kind: value / total for kind, value in times.items()}
