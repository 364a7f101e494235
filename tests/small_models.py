"""Small models and made-up windows for tests of models, training and evaluation."""

import numpy as np
import torch

from depthtime.config import ContinuousRun, DiffEqFormerRun, DiscreteRun, FormSizes, ModelSizes, Train, TransformerRun
from depthtime.data.batching import Windows
from depthtime.models.build import build_model

SIZES = ModelSizes(width=16, heads=4, ff_width=24, positions="fixed", embedding_std=1.0)
DISCRETE = DiscreteRun(model="discrete", layers=3, keep_weights=())
ODE = ContinuousRun(model="continuous", solver="rk4", num_steps=2, gradient="direct", t0=0.0, t1=1.0, keep_weights=())
GPT = FormSizes(form="gpt", width=16, heads=4, ff_width=24, dropout=0.0)
LLAMA = GPT.model_copy(update={"form": "llama"})
TRANSFORMER = TransformerRun(
    model="transformer", layers=3, wiring="sequential", step_scale="one", shares_weights=False, keep_weights=()
)
DIFFEQFORMER = DiffEqFormerRun(
    model="diffeqformer",
    num_steps=3,
    solver="euler_right",
    sinusoids=5,
    depth_features=4,
    time_scale=1000.0,
    decays_generators=False,
    keep_weights=(),
)
RECIPE = Train(
    max_steps=20,
    batch_size=4,
    batch_order="seeded",
    optimizer="adam",
    learning_rate=3e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    schedule="constant",
    warmup_steps=4,
    final_fraction=1.0,
    clip_norm=None,
    eval_every=5,
    eval_batch_size=8,
    precision="float32",
    device="cpu",
    threads=1,
)
CLASSES = 12
POSITIONS = 9


def model(run=ODE, *, seed=0, sizes=SIZES, num_classes=CLASSES, max_positions=POSITIONS):
    torch.manual_seed(seed)
    return build_model(run, sizes, num_classes=num_classes, max_positions=max_positions)


def assert_logits_ignore_later_tokens(network, tokens):
    """Changing tokens (B, N) from position j on leaves the logits before j identical, and changes those at j."""
    before = network(tokens)
    for j in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, j:] = (changed[:, j:] + 1 + torch.arange(tokens.shape[1] - j)) % CLASSES
        after = network(changed)
        assert torch.equal(after[:, :j], before[:, :j]), j
        assert not torch.equal(after[:, j], before[:, j])


def windows(count=40, *, seed=0, positions=POSITIONS, num_classes=CLASSES):
    """Windows over a stream in which each word mostly follows from the one before: there is something to learn."""
    rng = np.random.default_rng(seed)
    tokens = [0]
    for _ in range(count * positions):
        tokens.append((tokens[-1] * 5 + 1) % num_classes if rng.random() < 0.8 else int(rng.integers(num_classes)))
    starts = np.arange(count) * positions
    return Windows(np.array(tokens, dtype=np.uint16), starts, np.zeros(count, dtype=np.int64), positions)
