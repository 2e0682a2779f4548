"""What the SDK adds to every resource, for stacks that other versions of it have made; most tests do without."""

from __future__ import annotations

from typing import Any

from pulumi import Alias, ResourceTransformationArgs, ResourceTransformationResult
from pulumi.runtime import register_stack_transformation

_AZURE = "azure-native:"


def leave_out_older_types() -> None:
    """Take away the SDK's aliases for older API versions: dozens a resource, three quarters of a run's time.

    To be called first in a program. They matter only to stacks that another version of the SDK has made.
    """
    register_stack_transformation(_without_older_types)


def _without_older_types(resource: ResourceTransformationArgs) -> ResourceTransformationResult | None:
    options = resource.opts
    if not resource.type_.startswith(_AZURE) or not options.aliases:
        return None
    options.aliases = [alias for alias in options.aliases if not _is_older_type(alias)]
    return ResourceTransformationResult(resource.props, options)


def _is_older_type(alias: Any) -> bool:
    return isinstance(alias, Alias) and str(alias.type_).startswith(_AZURE)
