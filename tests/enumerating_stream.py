"""A stand-in for a random stream that answers every primitive draw with every outcome in turn.

`outcomes(run)` runs a function of a stream once for each path through its probability space and returns (probability,
result) pairs: the law of a design, from the design's own code. A rate uniform on [0, 1) is replaced by Gauss-Legendre
nodes, exact for the polynomials that coin flips make of it.
"""

from itertools import permutations

import numpy as np
import torch


class Rejected(Exception):  # noqa: N818 (a signal, not an error)
    """The design refused a draw and asked for another: this path has no probability of its own."""


class EnumeratingStream:
    def __init__(self, tree, path=()):
        self._tree, self._path = tree, path

    def child(self, *keys):
        if keys[0] in ("rate", "coins") and keys[-1] > 0:
            raise Rejected
        return EnumeratingStream(self._tree, (*self._path, *keys))

    def permutations(self, count, length):
        self._tree.claim(self._path)
        options = list(permutations(range(length)))
        return torch.tensor([options[self._tree.choose([1 / len(options)] * len(options))] for _ in range(count)])

    def integers(self, high, count):
        self._tree.claim(self._path)
        return torch.tensor([self._tree.choose([1 / high] * high) for _ in range(count)])

    def uniform(self):
        self._tree.claim(self._path)
        nodes, weights = np.polynomial.legendre.leggauss(4)
        return float((nodes[self._tree.choose(list(weights / 2))] + 1) / 2)

    def bernoulli(self, probabilities):
        self._tree.claim(self._path)
        flat = [bool(self._tree.choose([1 - float(p), float(p)])) for p in probabilities.reshape(-1)]
        return torch.tensor(flat).reshape(probabilities.shape)


class _Tree:
    def __init__(self):
        self._choices = []
        self.begin()

    def begin(self):
        self._depth, self.probability, self.first, self._claimed = 0, 1.0, None, set()

    def claim(self, path):
        assert path not in self._claimed, f"two draws from one stream {path}: they would be dependent"
        self._claimed.add(path)

    def choose(self, probabilities):
        if self._depth == len(self._choices):
            self._choices.append([0, len(probabilities)])
        choice = self._choices[self._depth][0]
        self._depth += 1
        self.first = (choice, probabilities[choice]) if self.first is None else self.first
        self.probability *= probabilities[choice]
        return choice

    def advance(self):
        """To the next path; False when there is none."""
        del self._choices[self._depth :]
        while self._choices:
            self._choices[-1][0] += 1
            if self._choices[-1][0] < self._choices[-1][1]:
                return True
            self._choices.pop()
        return False


def outcomes(run, *, first_stands=False):
    """Every (probability, result) of `run(stream)`, probabilities summing to one; refused draws are left out.

    What a refused draw leaves goes to all other paths, or (`first_stands`) to those with the same first choice.
    """
    tree, found = _Tree(), []
    while True:
        tree.begin()
        try:
            result = run(EnumeratingStream(tree))
            found.append((tree.first if first_stands else None, tree.probability, result))
        except Rejected:
            pass
        if not tree.advance():
            break
    total = {key: sum(p for k, p, _ in found if k == key) for key, _, _ in found}
    return [(p / total[key] * (key[1] if key else 1.0), result) for key, p, result in found]
