"""Runs a Pulumi program with a monitor of ours where the engine would stand: no engine, no provider, no network."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pulumi.runtime import mocks, set_all_config, settings
from pulumi.runtime.stack import run_in_stack

from plan import stack_file


def run(
    program: Callable[[], Any],
    monitor: mocks.MockMonitor,
    *,
    stack: str,
    preview: bool,
    config: Mapping[str, str],
    secret_keys: Iterable[str],
    logger: logging.Logger | None = None,
) -> None:
    """Run `program` to its end; whatever it raises is raised.

    Everything Pulumi knows sits in context variables, so each run has a context of its own and leaves nothing behind.
    """

    def configured() -> None:
        set_all_config(dict(config), list(secret_keys))
        settings.set_root_resource(None)  # type: ignore[arg-type]  # the stack makes a new one
        settings.configure(
            mocks.MockSettings(  # type: ignore[no-untyped-call]
                monitor=monitor,
                monitor_features=set(),
                engine=mocks.MockEngine(logger or logging.getLogger("pulumi.offline")),
                project=stack_file.PROJECT,
                stack=stack,
                dry_run=preview,
                organization="organization",
                callbacks=None,
                outputs=set(),
                lock=threading.Lock(),
                package_refs={},
                base_providers_by_ref={},
            )
        )
        # A loop of our own, made and closed here: newer Pythons have no ambient one for Pulumi to pick up.
        asyncio.run(run_in_stack(program))

    # Registering makes many objects and no rubbish to speak of: the collector would walk the SDK's modules for nothing.
    gc.disable()
    try:
        contextvars.copy_context().run(configured)
    finally:
        gc.enable()
