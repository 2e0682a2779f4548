"""A model's files on disk: found in the stores, and checked before an engine spends minutes on a broken copy."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huddle.errors import InputError
from huddle.registry import Model

DEFAULT_STORES = (Path("/mnt/nvme/workspace/models"), Path("/mnt/models"))  # the staged copy first
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json")
_HEADER_LIMIT = 100_000_000  # bytes; the safetensors library's own limit


class ModelFilesError(InputError):
    """A model's directory is missing or broken; the sentence says which file and what to do."""


def locate(model: Model, stores: Sequence[Path]) -> Path | None:
    """The model's directory in the first store that has one."""
    candidates = (store / model.store_directory for store in stores)
    return next((path for path in candidates if path.is_dir()), None)


def check_stores(stores: Sequence[Path]) -> None:
    """Refuse given stores of which none is there; one that is not mounted yet, beside another, is normal on a node.

    Raises:
        ModelFilesError: naming them.
    """
    if stores and not any(store.is_dir() for store in stores):
        raise ModelFilesError(
            f"no model store at {', '.join(map(str, stores))}; --store names a directory that holds models' directories"
        )


def check(directory: Path) -> None:
    """Check config, weights and tokenizer of a model's directory.

    Raises:
        ModelFilesError: naming the first file that is missing, cut short or not readable.
    """
    _json(directory / "config.json", "a model directory has one")
    _check_weights(directory)
    if not any((directory / name).is_file() for name in TOKENIZERS):
        raise ModelFilesError(f"{directory}: no tokenizer; one of {', '.join(TOKENIZERS)} must be there")


def _check_weights(directory: Path) -> None:
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        mapping = _json(index, "").get("weight_map")
        if not isinstance(mapping, dict) or not mapping:
            raise ModelFilesError(f"{index}: has no 'weight_map'; copy the index again")
        files = sorted({str(name) for name in mapping.values()})
        if outside := [name for name in files if Path(name).name != name]:
            raise ModelFilesError(
                f"{index}: names {outside[0]!r}; weights lie beside the index, so write the file's name alone"
            )
    else:
        files = sorted(path.name for path in directory.glob("*.safetensors"))
        if not files:
            raise ModelFilesError(f"{directory}: no *.safetensors weights; publish the model again")
    for name in files:
        path = directory / name
        if not path.is_file():
            raise ModelFilesError(f"{path}: is missing, although the index names it; publish the model again")
        _check_safetensors(path)


def _check_safetensors(path: Path) -> None:
    """A safetensors file says its own length: 8 bytes, a JSON header, and tensors up to the last offset."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(size, _HEADER_LIMIT):
            raise ModelFilesError(f"{path}: is not a safetensors file; publish the model again")
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ModelFilesError(f"{path}: its header is broken ({error}); publish the model again") from error
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise ModelFilesError(
            f"{path}: has {size:,} bytes where {expected:,} are due; it was cut short, publish it again"
        )


def _json(path: Path, missing: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFilesError(f"{path}: is missing; {missing}") from error
    except (OSError, ValueError) as error:
        raise ModelFilesError(f"{path}: is not readable JSON ({error})") from error
    if not isinstance(content, dict):
        raise ModelFilesError(f"{path}: must be a JSON object")
    return content
