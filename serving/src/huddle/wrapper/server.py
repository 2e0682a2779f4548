"""One process that serves: sockets, signals, drain."""

import asyncio
import contextlib
import errno
import gc
import secrets
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from huddle.wrapper import open_files
from huddle.wrapper import runtime as runtimes
from huddle.wrapper.config import ConfigError, WrapperConfig
from huddle.wrapper.http.connection import ClientConnection
from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.observability.metrics import Metrics
from huddle.wrapper.observability.metrics_server import MetricsService
from huddle.wrapper.observability.notify import Notifier
from huddle.wrapper.reload import Reloads
from huddle.wrapper.service import WrapperService

_BACKLOG: Final = 1_024
_GC_THRESHOLDS: Final = (20_000, 20, 50)  # requests leave no cycles behind; the default looks 30 times as often
_POLL_S: Final = 0.05


class Server:
    """Runs until SIGTERM or SIGINT, then drains. SIGHUP reloads; a second SIGTERM ends at once."""

    def __init__(
        self, load: Callable[[], WrapperConfig], salt_secret: bytes | None = None, notifier: Notifier | None = None
    ) -> None:
        self._load = load
        self._salt_secret = salt_secret or secrets.token_bytes(32)
        self._notifier = notifier or Notifier()
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()

    async def run(self, *, worker: int = 0, started: Callable[[], None] = lambda: None) -> None:
        """Serve. Raises `ConfigError` before anything listens when the configuration is wrong."""
        config, warning = open_files.fit(self._load())
        metrics = Metrics()
        log = LogWriter(dropped=metrics.logs_dropped.inc)
        if warning is not None:
            log.warning("open_files", problem=warning)
        service = WrapperService(runtimes.build(config, self._salt_secret), log, metrics)
        loop = asyncio.get_running_loop()
        shared = config.workers > 1
        kept = None if shared else self._notifier.kept(config.listen)
        sockets = [kept or listen(config.listen, shared=shared)]
        try:
            if config.metrics_listen is not None:
                sockets.append(listen(_shift(config.metrics_listen, worker), shared=False))
        except ConfigError:
            sockets[0].close()
            raise
        reloads = Reloads(service, self._configuration, self._notifier)
        for number, handler in self._handlers(reloads.ask).items():
            loop.add_signal_handler(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # a supervised worker's waits until here
        servers = [await loop.create_server(lambda: ClientConnection(service), sock=sockets[0], backlog=_BACKLOG)]
        if len(sockets) > 1:
            metrics_service = MetricsService(metrics)
            service.background.keep("metrics", metrics_service.tick)
            servers.append(await loop.create_server(lambda: ClientConnection(metrics_service), sock=sockets[1]))
        service.background.keep("tick", service.tick)
        for engine in service.engines.all:
            service.background.keep("probe", engine.probe.run)
        service.background.keep("reloads", reloads.run)
        if (interval := self._notifier.watchdog_interval_s()) is not None:
            service.background.keep("watchdog", lambda: self._watchdog(interval))
        upstream = ", ".join(engine.name for engine in service.engines.all)
        log.info("listening", listen=_name(sockets[0]), upstream=upstream, worker=worker)
        self._notifier.ready("serving")
        if kept is None and not shared:
            self._notifier.keep(sockets[0])
        started()
        gc.collect()
        gc.freeze()  # what lives as long as the process need not be looked at again
        gc.set_threshold(*_GC_THRESHOLDS)
        await self._stop.wait()
        await self._drain(service, servers[0], log)
        service.background.close()
        service.abort_all()
        service.engines.close()
        service.workbench.helper.close()
        service.answers.helper.close()
        service.book()
        for server in servers:
            server.close()
        log.info("stopped")
        log.close()

    def _configuration(self) -> WrapperConfig:
        return open_files.fit(self._load())[0]

    def _handlers(self, reload: Callable[[], None]) -> dict[signal.Signals, Callable[[], None]]:
        def stop() -> None:
            (self._at_once if self._stop.is_set() else self._stop).set()

        return {
            signal.SIGTERM: stop,
            signal.SIGINT: stop,
            signal.SIGHUP: reload,
        }

    async def _drain(self, service: WrapperService, server: asyncio.Server, log: LogWriter) -> None:
        """Not ready → (notice) → new requests are refused, running ones finish → done.

        The port stays open, as a closed one is an error at the gateway, which tries nothing else then: until the end
        here, and after it where systemd keeps the socket for the next process (`Notifier.keep`).
        """
        timeouts = service.runtime.config.timeouts
        self._notifier.stopping("draining")
        log.info("draining", running=service.running)
        service.draining = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._at_once.wait(), timeouts.drain_notice_s)
        service.refusing = True
        service.close_idle()
        deadline = service.clock() + timeouts.drain_s
        while service.running and not self._at_once.is_set() and service.clock() < deadline:
            await asyncio.sleep(_POLL_S)
        server.close()
        service.close_idle()
        if service.running:
            log.warning("drain_incomplete", running=service.running)
        else:
            await service.flushed(deadline)

    async def _watchdog(self, interval_s: float) -> None:
        while True:
            self._notifier.watchdog()
            await asyncio.sleep(interval_s)


def listen(bind: str, *, shared: bool) -> socket.socket:
    """A listening socket. Raises `ConfigError` with a sentence when it cannot be had."""
    if bind.startswith("unix:"):
        path = bind.removeprefix("unix:")
        with contextlib.suppress(FileNotFoundError):
            if Path(path).is_socket():
                Path(path).unlink()
        return _bound(socket.socket(socket.AF_UNIX), path, bind)
    host, _, port = bind.rpartition(":")
    host = host.strip("[]")
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return _bound(made, (host, int(port)), bind)


def _bound(made: socket.socket, address: Any, bind: str) -> socket.socket:
    made.setblocking(False)
    try:
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        holder = ""
        if error.errno == errno.EADDRINUSE and not bind.startswith("unix:"):
            from huddle import network  # noqa: PLC0415 - psutil is needed for this sentence only

            holder = f"; {network.holder(int(bind.rpartition(':')[2]))}"
        raise ConfigError(f"cannot listen on {bind}: {error.strerror}{holder}; choose another with --listen") from error
    return made


def _shift(bind: str, by: int) -> str:
    """The address for the next worker's metrics: the port after."""
    if bind.startswith("unix:"):
        return f"{bind}.{by}" if by else bind
    host, _, port = bind.rpartition(":")
    return f"{host}:{int(port) + by if int(port) else 0}"


def _name(listening: socket.socket) -> str:
    name = listening.getsockname()
    return name if isinstance(name, str) else f"{name[0]}:{name[1]}"
