"""Running a Pyro program with chosen values for its latent sites, and reading what it then says about the data."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from scipy import stats
from torch import Tensor
from torch.distributions import Beta, Gamma, Independent, LogNormal, MultivariateNormal, Normal

from mpt_bayes.checks import checked_tensor, named
from mpt_bayes.errors import ArgumentError, DataError, ModelError

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
    """

    name: str
    kind: Kind
    shape: torch.Size
    n_values: int
    is_local: bool

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
        self._takes_data = _takes_data(program)

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
            program(*self.arguments(x))
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
            latents.append(Latent(name, kind, shape, n_values, is_local))
        return latents

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


def _takes_data(program: Callable[..., Any]) -> bool:
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


def _kind(fn: Any) -> tuple[Kind, int]:
    """How a latent site can be handled, and how many values an element has."""
    if fn.has_enumerate_support:
        return "discrete", len(fn.enumerate_support(expand=False))
    base = base_of(fn)
    if isinstance(base, (Normal, MultivariateNormal)):
        return "normal", 0
    return ("continuous" if from_standard(fn, torch.zeros(fn.shape())) is not None else "sampled"), 0


def base_of(fn: Any) -> Any:
    """The distribution of single elements."""
    while isinstance(fn, Independent):
        fn = fn.base_dist
    return fn


def from_standard(fn: Any, z: Tensor) -> Tensor | None:
    """The value of a site as a function of standard normals of its shape; None where no such function is known."""
    base = base_of(fn)
    if isinstance(base, Normal):
        return base.loc + base.scale * z.to(base.loc)
    if isinstance(base, MultivariateNormal):
        return base.loc + (base.scale_tril @ z.to(base.loc)[..., None])[..., 0]
    if isinstance(base, LogNormal):
        return (base.loc + base.scale * z.to(base.loc)).exp()
    uniform = torch.special.ndtr(z.double())
    if isinstance(base, Gamma):
        value = torch.as_tensor(stats.gamma.ppf(uniform, base.concentration.double(), scale=1 / base.rate.double()))
        return value.to(base.rate)
    if isinstance(base, Beta):
        value = torch.as_tensor(stats.beta.ppf(uniform, base.concentration1.double(), base.concentration0.double()))
        return value.to(base.concentration0)
    try:
        value = torch.as_tensor(base.icdf(uniform))
    except NotImplementedError:
        return None
    return value.to(torch.get_default_dtype())


def log_prob_of(trace: Any, names: set[str]) -> float:
    """log p of the named sites in a trace, summed."""
    return math.fsum(float(trace.nodes[n]["fn"].log_prob(trace.nodes[n]["value"]).sum()) for n in names)
