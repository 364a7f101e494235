"""Precision and devices: bfloat16 stays close, float64 is float64, and what is not there is refused by name."""

import pytest
import torch

from depthtime.errors import TrainingError
from depthtime.seeding import seed_everything
from depthtime.train.checkpoint import dump_weights
from depthtime.train.loop import fit
from depthtime.train.setup import pick_device
from small_models import ODE, RECIPE, model, windows

HAS_CUDA = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not HAS_CUDA, reason="torch finds no CUDA device")


def _losses(precision="float32", device="cpu"):
    network = model(ODE).to(device)
    network = network.double() if precision == "float64" else network
    recipe = RECIPE.model_copy(update={"precision": precision})
    fitted = fit(network, windows(), windows(9, seed=1), recipe, seed=0)
    return [row[1] for row in fitted.progress.history], fitted.model


def test_bfloat16_keeps_float32_weights_and_stays_close():
    exact, _ = _losses()
    short, network = _losses("bfloat16")
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert short != exact
    assert short == pytest.approx(exact, rel=0.05)


def test_float64_agrees_with_float32_to_rounding():
    exact, network = _losses("float64")
    assert {p.dtype for p in network.parameters()} == {torch.float64}
    assert _losses()[0] == pytest.approx(exact, rel=1e-4)


@pytest.mark.skipif(HAS_CUDA, reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused_by_name():
    with pytest.raises(TrainingError, match=r"train.device = 'cuda'.*use auto or cpu"):
        pick_device("cuda")
    assert pick_device("auto").type in {"cpu", "mps"}


@pytest.mark.gpu
@needs_gpu
def test_training_on_a_gpu_is_deterministic_and_close_to_the_cpu():
    seed_everything(0)
    first, network = _losses(device="cuda")
    again, other = _losses(device="cuda")
    assert first == again
    assert dump_weights(network) == dump_weights(other)
    assert first == pytest.approx(_losses()[0], rel=1e-3)
