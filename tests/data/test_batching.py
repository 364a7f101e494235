"""Batches of a seed: every window once an epoch, the same for all models, another order for each seed and epoch."""

import numpy as np
import pytest

from depthtime.data.batching import BatchOrder


@pytest.mark.parametrize("kind", ["seeded", "source"])
def test_an_epoch_visits_every_window_at_most_once(kind):
    order = BatchOrder(23, 4, kind, 7)
    assert order.batches_per_epoch == 5
    for epoch in range(3):
        seen = np.concatenate([order.indices(epoch * 5 + batch) for batch in range(5)])
        assert len(set(seen.tolist())) == 20


def test_the_source_repeats_its_order_in_every_epoch():
    order = BatchOrder(16, 4, "source", 7)
    assert [order.indices(step).tolist() for step in range(4)] == np.arange(16).reshape(4, 4).tolist()
    assert order.indices(5).tolist() == order.indices(1).tolist()


def test_seeded_orders_differ_by_seed_and_epoch_and_repeat_exactly():
    order = BatchOrder(400, 8, "seeded", 7)
    assert order.indices(3).tolist() == BatchOrder(400, 8, "seeded", 7).indices(3).tolist()
    assert order.indices(3).tolist() != order.indices(53).tolist()
    assert order.indices(3).tolist() != BatchOrder(400, 8, "seeded", 8).indices(3).tolist()
