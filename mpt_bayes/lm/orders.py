"""Whole orders: how far a model's conditionals are from one joint, and the bound of the order mixture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mpt_bayes.checks import checked_count, checked_seed
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.batches import BatchLimits, Work
from mpt_bayes.lm.engine import run_works
from mpt_bayes.lm.rows import Text, encoded_rows
from mpt_bayes.lm.store import UnitStore
from mpt_bayes.lm.text import EncodedText
from mpt_bayes.masks import RandomOrders
from mpt_bayes.numerics.random import Stream


@dataclass(frozen=True, eq=False)
class OrderSpread:
    """log p_π(x) of one text along random orders π of its tokens, p_π by the chain rule. Nats.

    Attributes:
        order_log_probs: (n,) one for each order; all equal for the conditionals of one joint distribution.
        n_evaluations: forward passes.
        seed: replays the orders.
    """

    name: str
    order_log_probs: NDArray[np.float64] = field(repr=False)
    n_evaluations: int
    seed: int

    @property
    def mean(self) -> float:
        """Estimates the expected order-agnostic log-likelihood Σ_m S(m), without bias."""
        return float(self.order_log_probs.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean."""
        return self.spread / math.sqrt(len(self.order_log_probs))

    @property
    def spread(self) -> float:
        """Standard deviation over orders, the incoherence: 0 if and only if no order matters."""
        return float(self.order_log_probs.std(ddof=1))

    @property
    def order_mixture(self) -> float:
        """log (1/n) Σ_π p_π(x): at least the mean, and on average at most log E_π[p_π(x)], the log-likelihood of the
        mixture of all orders, which it reaches as n grows (Jensen's inequality, twice)."""
        return float(np.logaddexp.reduce(self.order_log_probs) - math.log(len(self.order_log_probs)))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "name": self.name,
            "units": "nats, total over scored tokens",
            "expected_order_agnostic_log_likelihood": self.mean,
            "standard_error": self.standard_error,
            "order_spread": self.spread,
            "order_mixture_lower_bound": self.order_mixture,
            "n_orders": len(self.order_log_probs),
            "n_evaluations": self.n_evaluations,
            "seed": self.seed,
        }


def order_spread(
    model: MaskedLM,
    texts: Sequence[Text],
    *,
    n_orders: int = 16,
    seed: int = 0,
    prompts: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    batch: BatchLimits | None = None,
    store: str | Path | None = None,
) -> list[OrderSpread]:
    """The chain-rule log-probability of each text along random orders: D forward passes an order.

    log p_π(x) = Σ_t log p(x_π(t) | x_π(1..t-1)). Its spread over orders measures incoherence; its mean is the expected
    order-agnostic log-likelihood; the log of the mean probability is the tighter bound of the order mixture.

    Raises:
        ArgumentError: fewer than two orders, or a seed that is no integer.

    Example:
        >>> import mpt_bayes as mb
        >>> (result,) = mb.lm.order_spread(mb.lm.antibody(), ["EVQLVES"], n_orders=4)
        >>> result.mean < result.order_mixture, result.spread > 0
        (True, True)
    """
    checked_count(n_orders, "n_orders", minimum=2)
    seed = checked_seed(seed)
    rows = encoded_rows(model, texts, prompts, names, "error", "error")
    works = (_order_work(row.pieces[0], n_orders, seed) for row in rows)
    kept = None if store is None else UnitStore.open(store, model=model.digest, seed=seed)
    done = run_works(model, works, batch or BatchLimits.for_device(model.device), kept)
    return [
        OrderSpread(row.name, values.reshape(n_orders, -1).sum(1).numpy(), len(values), seed)
        for row, (_, values) in zip(rows, done, strict=True)
    ]


def _order_work(text: EncodedText, n_orders: int, seed: int) -> Work:
    orders = RandomOrders(n_orders).draw_orders(text.dim, Stream(seed).child("orders", text.digest))
    scored = _first_of_the_hidden(orders.orders)
    return Work(text, orders.masks().hidden, scored, key=f"{text.digest} {n_orders} orders")


def _first_of_the_hidden(orders: Tensor) -> Tensor:
    """(n·D, D): for the nested mask of size m, the token that is revealed next, at place D - m of its order."""
    n, dim = orders.shape
    next_token = orders.flip(1).reshape(-1)
    return torch.zeros(n * dim, dim, dtype=torch.bool).scatter_(1, next_token[:, None], True)
