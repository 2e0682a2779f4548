"""The model registry: `models.yaml` read, checked and resolved. Pure and quick to import.

    registry = load()                       # the shipped one; load(Path("models.yaml")) for another
    registry.models["llama-3.1-8b"].model   # 'meta-llama/Llama-3.1-8B-Instruct'
    registry.resolve("hl")                  # Served(name='hl', model=..., alias=...)

Everything wrong is a `RegistryError` whose `sentences` name file, line, key and what is allowed.
"""

from huddle.registry.loader import DEFAULT_PATH, Registry, RegistryError, Served, UnknownModelError, load
from huddle.registry.schema import Alias, Dtype, Flags, KvCacheType, Load, Model, Quantization, Tuned

__all__ = [
    "DEFAULT_PATH",
    "Alias",
    "Dtype",
    "Flags",
    "KvCacheType",
    "Load",
    "Model",
    "Quantization",
    "Registry",
    "RegistryError",
    "Served",
    "Tuned",
    "UnknownModelError",
    "load",
]
