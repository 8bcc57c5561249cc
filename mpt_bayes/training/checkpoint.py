"""Training state in one NPZ file: arrays and a JSON text, nothing that runs code when it is read."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mpt_bayes.errors import ArgumentError


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Where a checkpoint may be read or written.

    Raises:
        ArgumentError: a folder, or a file in a folder that does not exist.
    """
    found = Path(path)
    if found.is_dir():
        raise ArgumentError(f"checkpoint {found} is a folder: name a file in it")
    if not found.parent.is_dir():
        raise ArgumentError(f"checkpoint {found}: there is no folder {found.parent}; make it first")
    return found


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


def _difference(name: str, there: Any, here: Any) -> str:
    """What differs: of a table of settings, which."""
    if not (isinstance(there, dict) and isinstance(here, dict)):
        return name
    changed = [
        f"{key} {there.get(key)!r} there, {value!r} here" for key, value in here.items() if there.get(key) != value
    ]
    return f"{name}: {', '.join(changed)}"


def load(
    path: Path, parameters: dict[str, Tensor], optimizer: torch.optim.Optimizer, expected: dict[str, Any]
) -> dict[str, Any]:
    """Put the saved values back in place; returns `meta`.

    Raises:
        ArgumentError: no checkpoint, a damaged one, or that of another model, start, data set, objective or settings.
    """
    meta, arrays = _read(path)
    differing = [_difference(name, meta.get(name), here) for name, here in expected.items() if meta.get(name) != here]
    if differing:
        raise ArgumentError(f"{path} is the checkpoint of another training ({'; '.join(differing)}): name another")
    with torch.no_grad():
        for name, value in parameters.items():
            value.copy_(torch.from_numpy(arrays[f"parameter/{name}"]))
    state: dict[int, dict[str, Tensor]] = {}
    for key, array in arrays.items():
        if key.startswith("optimizer/"):
            _, index, name = key.split("/")
            state.setdefault(int(index), {})[name] = torch.from_numpy(array)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return meta


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """`meta` and the arrays of a checkpoint, all of them read."""
    refusal = ArgumentError(
        f"{path} is no checkpoint of a training, or a damaged one: name another file, or remove it to start afresh"
    )
    if not zipfile.is_zipfile(path):
        raise refusal
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta: dict[str, Any] = json.loads(str(arrays.pop("meta")))
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError) as fault:
        raise refusal from fault
    if not {"history", "model"} <= set(meta):
        raise refusal
    return meta, arrays
