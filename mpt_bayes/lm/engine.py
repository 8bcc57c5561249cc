"""Works in, log-probabilities out: resumable from a store, shared among processes, the same whatever the batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from mpt_bayes.errors import DataError
from mpt_bayes.lm.adapter import MaskedLM
from mpt_bayes.lm.batches import Batch, BatchLimits, Runner, Work, batched
from mpt_bayes.lm.store import UnitStore
from mpt_bayes.progress import report

UNITS_AT_ONCE: Final = 2**17
"""Units planned together: bounds the memory that a large corpus takes."""


def run_works(
    model: MaskedLM, works: Iterable[Work], limits: BatchLimits, store: UnitStore | None = None
) -> Iterator[tuple[Work, Tensor]]:
    """Each work with its (P, D) float64 log-probabilities, 0 where not scored, in the order given.

    Works are taken in groups of about `UNITS_AT_ONCE` units, so they may be made as they are asked for.

    Under an initialised `torch.distributed` every process takes its share of the batches and all get all results.
    With a store, units that it holds are not run again, and each finished batch is added to it at once.

    Raises:
        DataError: a log-probability that is not finite, or a store that does not fit the texts; the text is named.
    """
    group: list[Work] = []
    n_units = 0
    for work in works:
        group.append(work)
        n_units += len(work.hidden)
        if n_units >= UNITS_AT_ONCE:
            yield from zip(group, _run_group(model, group, limits, store), strict=True)
            group, n_units = [], 0
    if group:
        yield from zip(group, _run_group(model, group, limits, store), strict=True)


def _run_group(model: MaskedLM, works: Sequence[Work], limits: BatchLimits, store: UnitStore | None) -> list[Tensor]:
    rank, world = (dist.get_rank(), dist.get_world_size()) if _distributed() else (0, 1)
    batches = batched(works, limits, model.vocabulary_size)
    mine = [batch for i, batch in enumerate(batches) if i % world == rank]
    values = _stored(works, mine, store)
    pending = [Batch(tuple(unit for unit in batch.units if unit not in values)) for batch in mine]
    total = sum(len(works[w].text.ids) for batch in mine for w, _ in batch.units)
    done = sum(len(works[w].text.ids) for w, _ in values)
    report(done, total)
    for batch, results in Runner(model, limits).run(works, [batch for batch in pending if batch.units]):
        _check_finite(works, batch, results)
        if store is not None:
            store.append([(works[w].key, mask) for w, mask in batch.units], results)
        values.update(zip(batch.units, results, strict=True))
        done += sum(len(works[w].text.ids) for w, _ in batch.units)
        report(done, total)
    if world > 1:
        shares: list[dict[tuple[int, int], Tensor]] = [{} for _ in range(world)]
        dist.all_gather_object(shares, values)
        values = {unit: value for share in shares for unit, value in share.items()}
    return _filled(works, values)


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()


def _stored(works: Sequence[Work], batches: list[Batch], store: UnitStore | None) -> dict[tuple[int, int], Tensor]:
    if store is None:
        return {}
    units = [unit for batch in batches for unit in batch.units]
    found = store.read(dict.fromkeys(works[w].key for w, _ in units))
    values = {(w, m): found[works[w].key, m] for w, m in units if (works[w].key, m) in found}
    for (w, mask), value in values.items():
        if len(value) != int(works[w].scored[mask].sum()):
            raise DataError(
                f"{store.path} holds {len(value)} values for a unit of another size: it is damaged; name a new file"
            )
    return values


def _check_finite(works: Sequence[Work], batch: Batch, results: list[Tensor]) -> None:
    for (w, _), value in zip(batch.units, results, strict=True):
        if not bool(value.isfinite().all()):
            raise DataError(
                f"a log-probability of the text '{' '.join(works[w].text.tokens[:6])} …' is not finite: the model "
                "gives NaN or probability zero; try dtype float32"
            )


def _filled(works: Sequence[Work], values: dict[tuple[int, int], Tensor]) -> list[Tensor]:
    result = [torch.zeros(work.scored.shape, dtype=torch.float64) for work in works]
    for (w, mask), value in values.items():
        result[w][mask, works[w].scored[mask]] = value.to(torch.float64)
    return result
