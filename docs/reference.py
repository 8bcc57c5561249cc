"""Writes docs/reference.md, every public name with the first line of its docstring: `python -m docs.reference`."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).with_name("reference.md")
MODULES = {
    "mpt_bayes": "imported as `mb`; its submodules below are there too",
    "mpt_bayes.models": "what predicts a hidden coordinate",
    "mpt_bayes.masks": "which coordinates are hidden, with what weight",
    "mpt_bayes.estimation": "budgets and the estimator that spends them; its functions are those of `mb`",
    "mpt_bayes.objectives": "what training maximises",
    "mpt_bayes.training": "PPCA, factor analysis and Gaussian processes trained by an objective",
    "mpt_bayes.gpytorch_mll": "in the place of GPyTorch's own objectives",
    "mpt_bayes.models.pyro_guides": "for `PyroModel`",
    "mpt_bayes.lm": "masked language models",
    "mpt_bayes.lm.pretraining": "pre-training from scratch",
    "mpt_bayes.lm.architectures": "encoders to train",
    "mpt_bayes.dropout": "masking seen as dropout",
    "mpt_bayes.representation": "of the layers of an encoder",
    "mpt_bayes.datasets": "real data from installed packages, and files",
    "mpt_bayes.plots": "from results to matplotlib Axes",
    "mpt_bayes.pretraining_plots": "figures of pre-training runs",
    "mpt_bayes.report": "from results to tables of rich",
    "mpt_bayes.errors": "one kind for each thing a user can do about it",
}


def public_names(module: ModuleType) -> list[str]:
    """Those of `__all__`; of a module without one, the functions and classes it defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__ and callable(value)
    ]


def reference() -> str:
    """The page."""
    sections = [
        "# Reference: every public name",
        "Formulas, shapes, units, errors and examples stand in the docstrings: `help(mb.compare)`. This page is\n"
        "written by `python -m docs.reference`.",
    ]
    listed = set()
    for name, purpose in MODULES.items():
        module = importlib.import_module(name)
        rows = []
        for public in sorted(public_names(module), key=str.lower):
            value = getattr(module, public)
            if inspect.ismodule(value) or id(value) in listed:
                continue
            listed.add(id(value))
            rows.append(f"| `{public}` | {_first_line(value)} |")
        sections += [f"## `{name}`: {purpose}", "\n".join(["| name | what it is |", "|---|---|", *rows])]
    return "\n\n".join(sections) + "\n"


def _first_line(value: object) -> str:
    """Of the docstring; of a constant, its value."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return f"`{value!r}`"
    sentence = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return sentence.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
