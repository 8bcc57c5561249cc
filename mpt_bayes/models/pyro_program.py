"""Running a Pyro program with chosen values for its latent sites, and reading what it then says about the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from mpt_bayes.errors import ModelError, MptBayesError
from mpt_bayes.models.pyro_doors import check_support, fault_of, takes_data
from mpt_bayes.models.pyro_quantiles import base_of, from_standard, reach_of

Kind = Literal["discrete", "normal", "continuous", "sampled"]


@dataclass(frozen=True)
class Latent:
    """A latent site of a program.

    Attributes:
        kind: "discrete" (can be enumerated), "normal", "continuous" (a known function of a standard normal), or
            "sampled" (can only be drawn).
        shape: of its value.
        n_values: of a discrete site, each element.
        is_local: has one element a coordinate, in the plate of the coordinates.
        reach: how many standard deviations of its standard normal its quantiles can be told apart.
    """

    name: str
    kind: Kind
    shape: torch.Size
    n_values: int
    is_local: bool
    reach: float

    @property
    def size(self) -> int:
        """Elements of its value."""
        return self.shape.numel()


@dataclass(frozen=True)
class Assignment:
    """Values of latent sites, by name, in one of three forms; sites not named are drawn from their prior.

    Attributes:
        standard: standard normal coordinates, mapped to the site's distribution.
        index: which value of the support, broadcast to the site's shape.
        value: the value itself.
    """

    standard: Mapping[str, Tensor] = field(default_factory=dict)
    index: Mapping[str, Tensor] = field(default_factory=dict)
    value: Mapping[str, Tensor] = field(default_factory=dict)


class _Assigner(Messenger):  # type: ignore[misc]
    """Gives latent sites their assigned values."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__()
        self._assignment = assignment

    def _pyro_sample(self, msg: Any) -> None:
        name, fn = msg["name"], msg["fn"]
        if msg["is_observed"] or site_is_subsample(msg):
            return
        value: Tensor | None
        if name in self._assignment.value:
            value = self._assignment.value[name].expand(fn.shape())
            check_support(fn, value, f"a draw of latent '{name}'", "pass draws of that site, in its own units")
        elif name in self._assignment.index:
            index = self._assignment.index[name].expand(fn.shape()).reshape(-1)
            support = fn.enumerate_support().reshape(-1, len(index))
            value = support[index, torch.arange(len(index))].reshape(fn.shape())
        elif name in self._assignment.standard:
            value = from_standard(fn, self._assignment.standard[name].reshape(fn.shape()))
        else:
            return
        msg["value"], msg["done"] = value, True


class Program:
    """A Pyro program of one datum, or of rows in a plate, with the site (or sites) of its D coordinates.

    Args:
        program: called with the datum if it takes an argument, else conditioned on it.
        observed: names of the sites that hold the coordinates, in order.
        example: (D,) an admissible datum, in the dtype the program takes.
        rows: name of the plate of the rows, where the program has one.
    """

    def __init__(
        self, program: Callable[..., Any], observed: tuple[str, ...], example: Tensor, rows: str | None
    ) -> None:
        self._program, self.observed, self.example, self._rows = program, observed, example, rows
        self._takes_data = takes_data(program)

    def arguments(self, x: Tensor) -> tuple[Tensor, ...]:
        """What the program, or a guide of it, is called with for datum x (D,)."""
        return (self._shaped(x),) if self._takes_data else ()

    def _shaped(self, x: Tensor) -> Tensor:
        return x[None] if self._rows is not None else x

    def run(self, assignment: Assignment, x: Tensor | None = None, seed: int = 0) -> Any:
        """The trace of one run. Sites without a value are drawn, from `seed` and never from the global state."""
        x = self.example if x is None else x
        program = self._program
        if not self._takes_data:
            parts = x if len(self.observed) > 1 else self._shaped(x)[None]
            program = poutine.condition(program, data=dict(zip(self.observed, parts, strict=True)))
        with torch.random.fork_rng(devices=[]), torch.no_grad(), poutine.trace() as tracer, _Assigner(assignment):
            torch.manual_seed(seed)
            try:
                program(*self.arguments(x))
            except MptBayesError:
                raise
            except (ValueError, IndexError, TypeError, RuntimeError) as error:
                hint = "" if self._rows else "; if it takes a table of rows, name their plate, rows=..."
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise ModelError(f"the program fails on a datum of shape {tuple(x.shape)}: {reason}{hint}") from error
        return tracer.trace

    def latents(self, shared: set[str]) -> list[Latent]:
        """The latent sites, found by one run; those named in `shared` may be outside the plate of the rows.

        Raises:
            ModelError: no such observed site, other values in it than the data's, or latents shared by rows.
        """
        trace = self.run(Assignment())
        sites = [trace.nodes.get(name) for name in self.observed]
        names = [name for name, node in trace.nodes.items() if node["type"] == "sample" and not site_is_subsample(node)]
        if any(site is None or not site["is_observed"] for site in sites):
            raise ModelError(
                f"the program has no observed site called {' or '.join(map(repr, self.observed))} (its sites: "
                f"{', '.join(names)}): name the site of the data with observed=..., and give it obs=..."
            )
        for name, site in zip(self.observed, sites, strict=True):
            self._check_shape(name, site)
            check_support(site["fn"], site["value"], f"example, at site '{name}',", "pass an admissible datum")
        self._check_whole(trace, has_posterior=bool(shared))
        values = torch.cat([site["value"].reshape(-1) for site in sites])
        if values.shape != self.example.shape or not torch.equal(values.to(self.example), self.example):
            raise ModelError(
                f"the observed sites hold {values.numel()} values, not the {len(self.example)} of the datum: every "
                "coordinate must be observed at one of them, in order (an autoregression observes its first value too)"
            )
        plates = {f.name for f in sites[0]["cond_indep_stack"] if f.size == len(self.example) and f.name != self._rows}
        latents = []
        for name in names:
            node = trace.nodes[name]
            frames = {f.name for f in node["cond_indep_stack"]}
            if node["is_observed"]:
                continue
            if self._rows is not None and self._rows not in frames and name not in shared:
                raise ModelError(
                    f"latent '{name}' is outside the plate '{self._rows}', so that rows depend on each other: give its "
                    f"posterior draws with posterior={{'{name}': ...}}, fix it, or make all the data one datum"
                )
            kind, n_values = _kind(node["fn"])
            shape = node["value"].shape
            is_local = bool(plates & frames) and shape.numel() == len(self.example)
            latents.append(Latent(name, kind, shape, n_values, is_local, reach_of(node["fn"])))
        return latents

    def _check_whole(self, trace: Any, *, has_posterior: bool) -> None:
        """Nothing in the program bears on its density beside its sample sites, unscaled and unmasked.

        Raises:
            ModelError: a factor, a scaled or masked site, other observed data, random numbers outside sample sites.
        """
        sites = {
            name: node
            for name, node in trace.nodes.items()
            if node["type"] == "sample" and not site_is_subsample(node) and not node["infer"].get("_deterministic")
        }
        for name, node in sites.items():
            fault = fault_of(node)
            if fault is None and node["is_observed"] and name not in self.observed and not has_posterior:
                fault = (
                    "is observed and none of the coordinates, so that log p(x) would leave it out: make it part of "
                    f"the datum, observed={(*self.observed, name)}, or pass posterior draws given it, posterior=..."
                )
            if fault is not None:
                raise ModelError(f"site '{name}' {fault}")
        value = {name: node["value"] for name, node in sites.items() if not node["is_observed"]}
        again = self.run(Assignment(value=value), seed=1).nodes
        for name, node in sites.items():
            first, second = (n["fn"].log_prob(node["value"]) for n in (node, again[name]))
            if not torch.allclose(first, second, equal_nan=True):
                raise ModelError(
                    f"the distribution at site '{name}' changes from run to run with the same latents: the program "
                    "draws random numbers outside its sample sites (torch.randn, dropout of a module in training "
                    "mode); make them sample sites, or draw them once outside the program"
                )

    def _check_shape(self, name: str, site: Any) -> None:
        """The distribution of an observed site is of as many values as it holds; else a plate says why."""
        plates = {frame.name: frame.size for frame in site["cond_indep_stack"]}
        if self._rows is not None and self._rows not in plates:
            around = ", ".join(map(repr, plates)) or "none"
            raise ModelError(
                f"site '{name}' is in no plate '{self._rows}' (its plates: {around}): name that of the rows"
            )
        shape, held = tuple(site["fn"].shape()), tuple(site["value"].shape)
        if math.prod(shape) == math.prod(held):
            return
        remedy = "give example the coordinates that the program has"
        if self._rows is not None and plates[self._rows] > 1:
            remedy = (
                f"the plate '{self._rows}' has a fixed size of {plates[self._rows]}, make it that of the data, len(x)"
            )
        elif self._rows is None and plates:
            remedy = f"if one of its plates is that of the rows, name it, rows={next(iter(plates))!r}"
        raise ModelError(f"site '{name}' has values of shape {shape}, and the datum has {held}: {remedy}")


def _kind(fn: Any) -> tuple[Kind, int]:
    """How a latent site can be handled, and how many values an element has."""
    if fn.has_enumerate_support:
        return "discrete", len(fn.enumerate_support(expand=False))
    base = base_of(fn)
    if isinstance(base, (Normal, MultivariateNormal)):
        return "normal", 0
    return ("continuous" if from_standard(fn, torch.zeros(fn.shape())) is not None else "sampled"), 0


def log_prob_of(trace: Any, names: set[str]) -> float:
    """log p of the named sites in a trace, summed."""
    return math.fsum(float(trace.nodes[n]["fn"].log_prob(trace.nodes[n]["value"]).sum()) for n in names)
