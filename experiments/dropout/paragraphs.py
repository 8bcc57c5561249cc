"""A small classification task on real text that ships with Python: which package is this docstring paragraph from?"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from mpt_bayes.lm.pretraining.corpora import library_docstrings
from mpt_bayes.numerics.random import Stream

LEFT_OUT = {"ensurepip", "pydoc_data", "turtledemo"}
SHORTEST = 8
"""Words a paragraph must have."""


@dataclass(frozen=True)
class Task:
    """Paragraphs with the package they are from, split at random.

    Attributes:
        classes: package names, the label is the index.
        train, test: (text, label) pairs.
        digest: SHA-256 of it all; another version of Python has another library, so another task.
    """

    classes: tuple[str, ...]
    train: list[tuple[str, int]]
    test: list[tuple[str, int]]

    @property
    def digest(self) -> str:
        """Of classes, texts and labels."""
        return hashlib.sha256(repr((self.classes, self.train, self.test)).encode()).hexdigest()


def package_task(*, n_classes: int = 10, per_class: int = 160, train_per_class: int = 60, seed: int = 0) -> Task:
    """The `n_classes` packages with most paragraphs, `per_class` paragraphs of each."""
    by_package: dict[str, list[str]] = defaultdict(list)
    for package, paragraph in package_paragraphs():
        by_package[package].append(paragraph)
    unique = {package: sorted(set(texts)) for package, texts in by_package.items()}
    classes = sorted(unique, key=lambda package: (-len(unique[package]), package))[:n_classes]
    train, test = [], []
    for label, package in enumerate(classes):
        texts = unique[package]
        order = torch.randperm(len(texts), generator=Stream(seed).child(package).generator())[:per_class].tolist()
        train += [(texts[i], label) for i in order[:train_per_class]]
        test += [(texts[i], label) for i in order[train_per_class:]]
    return Task(tuple(classes), train, test)


def package_paragraphs() -> Iterator[tuple[str, str]]:
    """(top-level package or module, paragraph) of every docstring in Python's own library."""
    for place, docstring in library_docstrings():
        package = place.parts[0].removesuffix(".py")
        if package in LEFT_OUT or package.startswith("_"):
            continue
        for paragraph in docstring.split("\n\n"):
            if len(paragraph.split()) >= SHORTEST and ">>>" not in paragraph:
                yield package, " ".join(paragraph.split())
