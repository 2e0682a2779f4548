"""Commands and files on another host, over SSH."""

import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import paramiko
from paramiko.common import cMSG_CHANNEL_REQUEST

from simulator.command_provider.command import CommandFailedError, Result, Say, failure
from simulator.command_provider.ssh import connected


def run(command: str, inputs: Mapping[str, Any], automatic: Mapping[str, str], say: Say) -> Result:
    """Run *command* on the connection's host; CommandFailedError when it ends badly or the host cannot be reached."""
    with connected(inputs["connection"], say) as transport:
        channel = _session(transport, automatic, inputs.get("environment") or {}, say)
        return _execute(channel, command, inputs.get("stdin") or "", say)


def copy(inputs: Mapping[str, Any], say: Say) -> None:
    """Copy an asset to a path, or an archive's files below it. CommandFailedError when a file cannot be written."""
    with connected(inputs["connection"], say) as transport, _sftp(transport) as sftp:
        target = PurePosixPath(inputs["remotePath"])
        for relative, data in _contents(inputs["source"]):
            path = target / relative if relative else target
            try:
                _make_folders(sftp, path.parent)
                with sftp.open(str(path), "w") as handle:
                    handle.write(data)
            except OSError as error:
                msg = f"copying to {path}: {error}"
                raise CommandFailedError(msg) from error


def _session(
    transport: paramiko.Transport, automatic: Mapping[str, str], own: Mapping[str, str], say: Say
) -> paramiko.Channel:
    """A session with its variables set. The host may refuse the automatic ones, but none of the user's own."""
    accepted = dict(automatic)
    while True:
        channel = transport.open_session()
        refused = next((name for name, value in accepted.items() if not _set_variable(channel, name, value)), None)
        if refused is None:
            break
        say(f"warning: the host refused the variable {refused}; see AcceptEnv of its sshd")
        del accepted[refused]  # and the library closes a session after a refusal, so: again
    for name, value in own.items():
        if not _set_variable(channel, name, value):
            msg = f"could not set environment variable {name}: the host refused it; add it to AcceptEnv of its sshd"
            raise CommandFailedError(msg)
    return channel


def _set_variable(channel: paramiko.Channel, name: str, value: str) -> bool:
    """Whether the host took it: the plugin asks that, and the library's own method does not."""
    request = paramiko.Message()
    request.add_byte(cMSG_CHANNEL_REQUEST)
    request.add_int(channel.remote_chanid)
    request.add_string("env")
    request.add_boolean(True)
    request.add_string(name)
    request.add_string(value)
    channel._event_pending()
    channel.transport._send_user_message(request)
    channel.event.wait()
    return bool(channel.event_ready)


def _execute(channel: paramiko.Channel, command: str, stdin: str, say: Say) -> Result:
    channel.exec_command(command)
    collected: dict[str, list[str]] = {"stdout": [], "stderr": []}
    order: list[str] = []

    def collect(stream: Any, name: str) -> None:
        for line in stream:
            collected[name].append(line)
            order.append(line)
            say(line.rstrip("\n"))

    readers = [
        threading.Thread(target=collect, args=(channel.makefile("r"), "stdout")),
        threading.Thread(target=collect, args=(channel.makefile_stderr("r"), "stderr")),
    ]
    for reader in readers:
        reader.start()
    try:
        channel.sendall(stdin.encode())
        channel.shutdown_write()
    except OSError:
        say("the command ended before it had read its input")
    for reader in readers:
        reader.join()
    status = channel.recv_exit_status()
    if status:
        raise failure(command, f"Process exited with status {status}", "".join(order))
    return Result(*("".join(lines).removesuffix("\n") for lines in collected.values()))


def _sftp(transport: paramiko.Transport) -> paramiko.SFTPClient:
    client = paramiko.SFTPClient.from_transport(transport)
    if client is None:
        msg = "the host offers no sftp"
        raise CommandFailedError(msg)
    return client


def _make_folders(sftp: paramiko.SFTPClient, folder: PurePosixPath) -> None:
    for path in [*reversed(folder.parents), folder]:
        try:
            if stat.S_ISDIR(sftp.stat(str(path)).st_mode or 0):
                continue
        except FileNotFoundError:
            sftp.mkdir(str(path))


def _contents(source: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Relative path (empty for a single file) and bytes of everything in an asset or archive."""
    if "text" in source:
        yield "", str(source["text"]).encode()
    elif "assets" in source:
        for name, part in sorted(source["assets"].items()):
            for below, data in _contents(part):
                yield f"{name}/{below}" if below else name, data
    elif "path" in source and Path(source["path"]).is_dir():
        root = Path(source["path"])
        for path in sorted(root.rglob("*")):
            if path.is_file():
                yield path.relative_to(root).as_posix(), path.read_bytes()
    elif "path" in source:
        yield "", Path(source["path"]).read_bytes()
    else:
        msg = "source: this stand-in copies text, files, folders and archives made of them, nothing from an address"
        raise CommandFailedError(msg)
