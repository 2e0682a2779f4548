"""Broken data of the program is a sentence that names file, line and field; never a traceback."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from huddle import gpus, versions
from huddle.errors import InputError
from infra.reports import cost, durations

READERS: dict[str, tuple[Any, str, Callable[[], Any], str]] = {
    "gpus": (gpus, "_DATA", gpus._tables.__wrapped__, "memory-mib:"),
    "versions": (versions, "_DATA", versions.load.__wrapped__, "vllm:"),
    "prices": (cost, "_PRICES", cost.load_prices.__wrapped__, "as_of:"),
    "durations": (durations, "_DURATIONS", durations.load.__wrapped__, "create:"),
}


@pytest.mark.parametrize("name", READERS)
def test_broken_data_is_told_by_file_and_field(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, attribute, read, field = READERS[name]
    text, copy = getattr(module, attribute).read_text(encoding="utf-8"), tmp_path / f"{name}.yaml"
    monkeypatch.setattr(module, attribute, copy)
    for wrong, said in (
        (text.replace(field, f"{field} [", 1), "is not YAML"),
        (text.replace(field, f"{field[:-1]}x:", 1), f"{field[:-1]}: is required"),
        (re.sub(rf"{field} [^,\n]+", f"{field} {{a: b}}", text, count=1), f"{field[:-1]}: {{'a': 'b'}} "),
        ("[]", "must be a mapping"),
    ):
        copy.write_text(wrong, encoding="utf-8")
        with pytest.raises(InputError) as caught:
            read()
        assert said in str(caught.value)
        assert all(sentence.startswith(f"{copy}:") for sentence in caught.value.sentences)
    copy.unlink()
    with pytest.raises(InputError, match="cannot read"):
        read()
