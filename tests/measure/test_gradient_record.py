"""What the gradient record says of each method is true of a small model: exact or not, how much memory, which calls."""

import itertools
import math
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import made_up_study as made_up
from depthtime.config import Gradients, load_params
from depthtime.errors import ConfigError
from depthtime.measure import gradients
from depthtime.measure.gradients import SavedBytes, gradient, gradient_errors, make_problem, measure_gradients
from depthtime.models.continuous import ContinuousDepth
from depthtime.records import read_json
from small_models import DISCRETE, ODE, model, windows
from tolerances import ROUNDING

STEPS = (1, 2, 4, 8)
METHODS = ("direct", "checkpointed", "adjoint", "reversible")
CALLS = {"direct": (4, 0), "checkpointed": (4, 4), "adjoint": (4, 4), "reversible": (8, 8)}  # a step of rk4


def settings(**changes):
    given = {"run": "core/ode/42", "methods": METHODS, "steps": STEPS, "batch_size": 4, "rounds": 3, "threads": 1}
    return Gradients(**{**given, **changes})


def small_problem():
    words, targets = windows().take(torch.arange(4).numpy())
    return make_problem(model(ODE), torch.from_numpy(words), torch.from_numpy(targets))


@pytest.fixture(scope="module")
def measured():
    return gradient_errors(small_problem(), settings())


def column(measured, method, key):
    return [measured[method][f"steps_{n}"][key] for n in STEPS]


def test_the_reference_is_the_gradient_of_the_model(measured):
    network = model(ODE).double()
    problem = small_problem().double()
    words, _ = windows().take(torch.arange(4).numpy())
    logits = network(torch.from_numpy(words))
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), problem.targets.flatten()).backward()
    expected = torch.cat([p.grad.flatten() for p in network.core.parameters()])
    found = gradient(problem, lambda y: problem.solve(y, "direct", ODE.num_steps).y)
    torch.testing.assert_close(found[problem.y0.numel() :], expected, rtol=1e-6, atol=1e-8)  # y0 was rounded to float32


@pytest.mark.parametrize("method", ["direct", "checkpointed", "reversible"])
def test_exact_methods_differ_from_their_reference_by_rounding_alone(measured, method):
    assert max(column(measured, method, "relative_error_float64")) < 1e-10
    assert max(column(measured, method, "relative_error")) < ROUNDING[torch.float32]


def test_the_adjoint_converges_with_its_order_and_is_not_exact(measured):
    errors = column(measured, "adjoint", "relative_error_float64")
    assert errors[0] > 1e-3
    assert all(coarse > 8 * fine for coarse, fine in itertools.pairwise(errors))
    assert column(measured, "adjoint", "relative_error")[0] == pytest.approx(errors[0], rel=1e-3)


def test_the_reversible_scheme_is_another_one_and_converges_to_the_plain_one(measured):
    differences = column(measured, "reversible", "scheme_difference")
    assert differences[0] < 1e-12  # with one step y alone is the plain scheme
    assert differences[1] > 10 * differences[3] > 1e-9
    assert all(column(measured, method, "scheme_difference") == [None] * 4 for method in METHODS[:3])


def test_saved_bytes_of_direct_grow_with_the_steps_and_of_adjoint_and_reversible_do_not(measured):
    direct = column(measured, "direct", "peak_saved_bytes")
    assert direct[3] / direct[0] == pytest.approx(8, rel=0.05)
    for method in ("adjoint", "reversible"):
        saved = column(measured, method, "peak_saved_bytes")
        assert saved[1] == saved[2] == saved[3]
        assert saved[3] < direct[1]


def test_saved_bytes_of_checkpointing_are_a_state_a_step_and_the_insides_of_one_step(measured):
    state = small_problem().y0.numel() * 4
    saved = column(measured, "checkpointed", "peak_saved_bytes")
    assert [saved[i + 1] - saved[i] for i in range(3)] == [state, 2 * state, 4 * state]
    assert saved[0] == column(measured, "direct", "peak_saved_bytes")[0]


@pytest.mark.parametrize("method", METHODS)
def test_calls_of_the_field_are_stages_times_steps(measured, method):
    forward, backward = CALLS[method]
    assert column(measured, method, "nfe_forward") == [forward * n for n in STEPS]
    assert column(measured, method, "nfe_backward") == [backward * n for n in STEPS]


def test_what_is_computed_does_not_change_when_it_is_computed_again():
    few = settings(steps=(2,))
    assert gradient_errors(small_problem(), few) == gradient_errors(small_problem(), few)


class AliveBytes(TorchDispatchMode):
    """Bytes of every tensor that an operation makes, until it is freed: independent of what autograd saves."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self.known:
                storage = tensor.untyped_storage()
                self.known.add(storage.data_ptr())
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.forget, storage.data_ptr(), storage.nbytes())
        return made

    def forget(self, key, num_bytes):
        self.known.discard(key)
        self.now -= num_bytes


@pytest.mark.parametrize("method", METHODS)
def test_nothing_that_grows_with_the_steps_is_missed(measured, method):
    """All tensors alive at once exceed the saved ones by gradients and temporaries, as much for 8 steps as for 2."""
    problem = small_problem()
    given = sum(t.numel() * 4 for t in problem.parameters)
    beyond = []
    for n in (2, 8):
        alive = AliveBytes()
        alive.known |= {t.untyped_storage().data_ptr() for t in (problem.y0, *problem.parameters)}
        gradient(problem, lambda y, n=n: problem.solve(y, method, n).y, alive)
        beyond.append(alive.peak - measured[method][f"steps_{n}"]["peak_saved_bytes"])
    assert 0 <= beyond[0] < 4 * given + 20 * problem.y0.numel() * 4
    assert abs(beyond[1] - beyond[0]) <= 2 * problem.y0.numel() * 4


def test_a_storage_counts_once_in_full_until_it_is_freed():
    known, x = torch.ones(100, requires_grad=True), torch.ones(10, requires_grad=True)
    saved = SavedBytes([known])
    with saved:
        y = (x * 2).exp()  # saves its result, 40 bytes
        z = y * y + y[:3].sum() * known.sum()
    del y
    assert saved.peak == saved.now >= 40
    z.sum().backward()
    del z
    assert saved.now == 0


def test_the_record_holds_the_fields_that_claims_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = load_params(made_up.REPOSITORY / "params.yaml")
    few = study.model_copy(update={"gradients": settings(steps=(1, 4))})
    monkeypatch.setattr(gradients, "load_problem", lambda study: small_problem())
    seen = []
    measure_gradients(few, lambda done, total: seen.append((done, total)))
    record = read_json(gradients.paths.measured("gradients"))
    assert seen == [(done, 40) for done in range(1, 41)]
    assert record["batch"] == {"windows": 4, "positions": 9}
    assert record["steps"] == [1, 4]
    for method in METHODS:
        for row in (record[method]["steps_1"], record[method]["steps_4"]):
            assert 0 < row["q1_s"] <= row["median_s"] <= row["q3_s"]
            assert math.isfinite(row["relative_error"])
        assert record[method]["memory_ratio_64_over_4"] is None


def test_the_memory_ratio_is_that_of_64_and_4_steps():
    rows = {
        "steps_4": {"peak_saved_bytes": 10},
        "steps_8": {"peak_saved_bytes": 1},
        "steps_64": {"peak_saved_bytes": 15},
    }
    assert gradients.memory_ratio(rows) == 1.5


def test_a_run_without_a_solve_is_refused():
    study = load_params(made_up.REPOSITORY / "params.yaml")
    bad = study.model_copy(update={"gradients": settings(run="core/discrete/42")})
    with pytest.raises(ConfigError, match=r"gradients.run = 'core/discrete/42': expected a run of `model: continuous`"):
        gradients.load_problem(bad)
    assert not isinstance(model(DISCRETE).core, ContinuousDepth)
