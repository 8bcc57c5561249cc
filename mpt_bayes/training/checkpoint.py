"""Training state in one NPZ file: arrays and a JSON text, nothing that runs code when it is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpt_bayes.errors import ArgumentError


def save(path: Path, parameters: dict[str, Tensor], optimizer: torch.optim.Optimizer, meta: dict[str, Any]) -> None:
    """Write parameters, the optimiser's tensors and `meta`; the file is replaced in one step."""
    arrays = {f"parameter/{name}": value.detach().cpu().numpy() for name, value in parameters.items()}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            arrays[f"optimizer/{index}/{name}"] = torch.as_tensor(value).cpu().numpy()
    temporary = path.with_name(path.name + ".part")
    with temporary.open("wb") as file:
        np.savez(file, meta=np.array(json.dumps(meta)), **arrays)  # type: ignore[arg-type]
    os.replace(temporary, path)


def load(
    path: Path, parameters: dict[str, Tensor], optimizer: torch.optim.Optimizer, expected: dict[str, Any]
) -> dict[str, Any]:
    """Put the saved values back in place; returns `meta`.

    Raises:
        ArgumentError: a checkpoint of another model, data set, objective or settings.
    """
    with np.load(path, allow_pickle=False) as file:
        meta: dict[str, Any] = json.loads(str(file["meta"]))
        differing = [name for name, value in expected.items() if meta.get(name) != value]
        if differing:
            raise ArgumentError(f"{path} is the checkpoint of another training ({', '.join(differing)}): name another")
        with torch.no_grad():
            for name, value in parameters.items():
                value.copy_(torch.from_numpy(file[f"parameter/{name}"]))
        state: dict[int, dict[str, Tensor]] = {}
        for key in file.files:
            if key.startswith("optimizer/"):
                _, index, name = key.split("/")
                state.setdefault(int(index), {})[name] = torch.from_numpy(file[key])
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return meta
