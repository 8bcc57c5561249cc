"""Whether a grid serves the posteriors of the data: do they lie inside it, and on enough of its nodes."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from mpt_bayes.errors import MptBayesWarning

EDGE_MASS = 1e-3
OVERLAP = 0.55
"""Of a normal posterior of standard deviation σ on nodes h apart the overlap is exp(-h²/4σ²): 0.55 at σ = 0.65 h, where
the error of the sum, 2 exp(-2π²σ²/h²), is 5e-4; a posterior far narrower than h, midway between two nodes, has 0.5.
Funnels, which are narrow only in places, and kinks can be off by more in silence."""


@dataclass(frozen=True)
class GridFit:
    """How N posteriors lie on a product grid of L dimensions.

    Attributes:
        edge: (N, L) posterior mass at the two outermost nodes of each dimension.
        overlap: (N, L) Σ_k w_k w_k+1 / Σ_k w_k², k + 1 the next node in the dimension: near 1 where resolved.
    """

    edge: Tensor
    overlap: Tensor

    @classmethod
    def of(cls, log_joint: Tensor, shape: tuple[int, ...]) -> Self:
        """From (N, K) log p(x, z_k), in the order of (combinations of other latents, *shape)."""
        weight = log_joint.softmax(1).reshape(len(log_joint), -1, *shape)
        alone = weight.square().flatten(1).sum(1)
        edges, overlaps = [], []
        for axis, length in enumerate(shape, 2):
            ends = weight.index_select(axis, torch.tensor([0, length - 1], device=weight.device))
            edges.append(ends.flatten(1).sum(1))
            beside = weight.narrow(axis, 1, length - 1) * weight.narrow(axis, 0, length - 1)
            overlaps.append(beside.flatten(1).sum(1) / alone)
        return cls(torch.stack(edges, 1), torch.stack(overlaps, 1))

    @classmethod
    def joined(cls, parts: list[GridFit]) -> Self:
        """Of consecutive rows."""
        return cls(torch.cat([p.edge for p in parts]), torch.cat([p.overlap for p in parts]))

    def beyond_edge(self) -> Tensor:
        """(N,) whether the grid ends where the posterior is."""
        return (self.edge > EDGE_MASS).any(1)

    def unresolved(self) -> Tensor:
        """(N,) whether the posterior lies on too few nodes to be summed."""
        return (self.overlap < OVERLAP).any(1)


@dataclass
class GridWatch:
    """Looks at the posteriors of each table of data, and warns where the grid does not serve them.

    The same finding on the same data is told once, since an estimator and log p(x) both look.

    Attributes:
        shape: nodes of each dimension.
        names: of the dimensions, in messages.
        wider: what to pass where the grid ends too early.
        finer: what to pass where it is too coarse.
        is_silent: keeps its finding in `last` and does not warn.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    wider: str
    finer: str
    is_silent: bool = False
    last: GridFit | None = None
    _told: set[bytes] = field(default_factory=set)

    def look(self, x: Tensor, fit: GridFit) -> None:
        """Keep the finding on (N, D) data, and warn of it."""
        self.last = fit
        text = "; ".join(self._faults(fit))
        if self.is_silent or not text:
            return
        values = x.detach().to("cpu", torch.float64).contiguous().numpy().tobytes()
        key = hashlib.blake2b(values + text.encode(), digest_size=16).digest()
        if key not in self._told:
            self._told.add(key)
            warnings.warn(f"{text}; until then log p(x) and scores are unreliable there", MptBayesWarning, stacklevel=4)

    def _faults(self, fit: GridFit) -> list[str]:
        found = []
        for bad, size, what, remedy in (
            (fit.beyond_edge(), fit.edge, "ends where the posterior of {} is", self.wider),
            (fit.unresolved(), 1 - fit.overlap, "is too coarse for the posterior of {}", self.finer),
        ):
            if not bool(bad.any()):
                continue
            row = int(torch.where(bad, size.amax(1), -torch.inf).argmax())
            rows = f"row {row}" + (f" ({int(bad.sum())} of {len(bad)} rows)" if len(bad) > 1 else "")
            mass = f" ({size[row].max():.2g} of its mass at the last nodes)" if size is fit.edge else ""
            found.append(f"the grid of {self.names[int(size[row].argmax())]} {what.format(rows)}{mass}: {remedy}")
        return found
