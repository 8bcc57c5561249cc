"""What can be wrong with a Pyro program, its datum or its draws, each in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from pyro.distributions import MaskedDistribution, Unit
from torch import Tensor

from mpt_bayes.checks import checked_tensor, named
from mpt_bayes.errors import ArgumentError, DataError, ModelError
from mpt_bayes.models.pyro_quantiles import base_of

if TYPE_CHECKING:
    from mpt_bayes.models.pyro_program import Latent


def takes_data(program: Callable[..., Any]) -> bool:
    """Whether a program takes the datum, or nothing."""
    if not callable(program):
        raise ArgumentError(f"program is {named(program)}: expected a function with Pyro sample statements")
    parameters = inspect.signature(program).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(needed) > 1:
        raise ArgumentError(
            f"program needs {len(needed)} arguments ({', '.join(needed)}): it is called with the datum alone, so fix "
            "the others with functools.partial or a lambda"
        )
    return bool(parameters)


def checked_names(observed: Any) -> tuple[str, ...]:
    """Names of the sites of the coordinates.

    Raises:
        ArgumentError: neither a name nor a sequence of names.
    """
    names = (observed,) if isinstance(observed, str) else observed
    if not isinstance(names, tuple | list) or not names or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"observed is {named(observed)}: expected the name of a site, or a tuple of names in order")
    return tuple(names)


def check_datum(example: Tensor) -> None:
    """One complete datum, (D,).

    Raises:
        DataError: no tensor, another shape, missing entries.
    """
    checked_tensor(example, "example")
    if example.ndim != 1:
        advice = f"of the {len(example)} rows pass one, x[0]" if example.ndim == 2 else "pass one row of the data"
        raise DataError(f"example has shape {tuple(example.shape)}: expected one datum, (D,); {advice}")
    if bool(example.isnan().any()):
        raise DataError("example has a missing entry (NaN): pass a complete datum, of any admissible values")


def check_draws(posterior: Any) -> None:
    """Draws by site, at least two, as many of each site, all finite.

    Raises:
        ArgumentError: no mapping, or fewer than two draws.
        DataError: draws that are no tensor, or not finite.
        ModelError: sites with different numbers of draws.
    """
    if not isinstance(posterior, Mapping):
        raise ArgumentError(f"posterior is a {type(posterior).__name__}: expected draws by site, {{'site': tensor}}")
    lengths = set()
    for name, draws in posterior.items():
        checked_tensor(draws, f"posterior[{name!r}]")
        if draws.ndim == 0 or len(draws) < 2:
            raise ArgumentError(
                f"posterior[{name!r}] has shape {tuple(draws.shape)}: pass at least two draws, (S, ...), whose spread "
                "is the error of the result"
            )
        bad = ~draws.isfinite().reshape(len(draws), -1).all(1)
        if bool(bad.any()):
            raise DataError(f"posterior[{name!r}] has a NaN or infinite value in draw {int(bad.nonzero()[0])}: drop it")
        lengths.add(len(draws))
    if len(lengths) > 1:
        raise ModelError(f"posterior has sites with {sorted(lengths)} draws: give the same draws of every site")


def check_sites(posterior: Mapping[str, Tensor], latents: list[Latent]) -> None:
    """The draws are of latent sites of the program, and of their shape.

    Raises:
        ArgumentError: another name.
        DataError: another shape.
    """
    shapes = {latent.name: latent.shape for latent in latents}
    for name, draws in posterior.items():
        if name not in shapes:
            sites = ", ".join(map(repr, shapes)) or "none"
            raise ArgumentError(f"posterior has draws of {name!r}, no latent site of the program (its sites: {sites})")
        wanted, given = tuple(shapes[name]), tuple(draws.shape[1:])
        fits = len(given) <= len(wanted) and all(
            g in (1, w) for g, w in zip(reversed(given), reversed(wanted), strict=False)
        )
        if not fits:
            raise DataError(
                f"posterior[{name!r}] has shape {tuple(draws.shape)}: expected {len(draws)} draws of the site's shape "
                f"{wanted}, {(len(draws), *wanted)}"
            )


def check_guide(sites: set[str], latents: set[str]) -> None:
    """A guide is of the continuous latents that are to be drawn, of all of them and of no other.

    Raises:
        ArgumentError: too few sites, or too many.
    """
    if sites == latents:
        return
    wanted = ", ".join(map(repr, sorted(latents))) or "none"
    extra = sorted(sites - latents)
    remedy = f"; leave out {', '.join(map(repr, extra))}, poutine.block(..., hide={extra})" if extra else ""
    raise ArgumentError(
        f"guide has the sites {', '.join(map(repr, sorted(sites))) or 'none'}, and the latents to draw are {wanted} "
        f"(the others are summed or integrated exactly){remedy}"
    )


def check_support(fn: Any, value: Tensor, what: str, remedy: str) -> None:
    """A value that the distribution of a site can have.

    Raises:
        DataError: outside its support.
    """
    base = base_of(fn)
    if not bool(base.support.check(value).all()):
        raise DataError(f"{what} is outside the support of {type(base).__name__}: {remedy}")


def fault_of(node: Any) -> str | None:
    """What of a site is no density of its value."""
    fn = base_of(node["fn"])
    if isinstance(fn, Unit):
        return "is a pyro.factor, which is no density: write it as a distribution of a latent or of the data"
    if not bool((torch.as_tensor(node["scale"]) == 1).all()):
        return (
            f"is scaled by {torch.as_tensor(node['scale']).max():g} (poutine.scale, or a plate that subsamples), and "
            "a power of a density is none: take the scale off, or give the plate all its members"
        )
    masks = [node["mask"], fn._mask if isinstance(fn, MaskedDistribution) else None]
    if not all(mask is None or bool(torch.as_tensor(mask).all()) for mask in masks):
        return (
            "is masked out (poutine.mask, .mask(...)): take the mask off, and pass data with missing entries as NaN "
            "with missing='marginalise'"
        )
    return None
