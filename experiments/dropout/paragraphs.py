"""A small classification task on real text that ships with Python: which package is this docstring paragraph from?"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from mpt_bayes.numerics.random import Stream

LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "pydoc_data", "ensurepip"}
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


def package_task(*, n_classes: int = 10, per_class: int = 240, train_per_class: int = 100, seed: int = 0) -> Task:
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
    """(top-level package or module, paragraph) of every docstring in Python's own library; nothing is imported."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        package = parts[0].removesuffix(".py")
        if LEFT_OUT & set(parts) or package.startswith("_"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                    if len(paragraph.split()) >= SHORTEST and ">>>" not in paragraph:
                        yield package, " ".join(paragraph.split())
