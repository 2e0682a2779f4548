"""The service that the engine calls, one method each."""

import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

from simulator.language_host.environment import EnvironmentNotUsableError
from simulator.language_host.program import ProgramRunner, project_environment


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """What `pulumi preview`, `up`, `refresh`, `destroy`, `about` and `install` need; the rest answers UNIMPLEMENTED."""

    def __init__(self, runner: ProgramRunner) -> None:
        self._runner = runner

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> language_pb2.LanguageHandshakeResponse:
        """Nothing to agree on beyond being here."""
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """The version of the CLI that this host stands beside."""
        return plugin_pb2.PluginInfo(version=version("pulumi"))

    def GetRequiredPackages(
        self, request: language_pb2.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPackagesResponse:
        """The providers of the packages that are installed in the project's Python."""
        try:
            plugins = project_environment(request.info).required_plugins()
        except EnvironmentNotUsableError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        packages = [
            plugin_pb2.PackageDependency(
                name=plugin["name"],
                kind="resource",
                version=plugin.get("version", ""),
                server=plugin.get("server", ""),
            )
            for plugin in plugins
        ]
        return language_pb2.GetRequiredPackagesResponse(packages=packages)

    def Run(self, request: language_pb2.RunRequest, context: grpc.ServicerContext) -> language_pb2.RunResponse:
        """Run the program to its end."""
        return self._runner.run(request)

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """End running programs."""
        self._runner.cancel()
        return empty_pb2.Empty()

    def InstallDependencies(
        self, request: language_pb2.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        """`pulumi install`: the project's own setup, so that there is one way to make its Python."""
        root = Path(request.info.root_directory)
        command = [str(root / "tools" / "setup" / "setup.sh")]
        if not Path(command[0]).exists():
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{root} has no tools/setup/setup.sh to install it with")
        with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            for line in process.stdout or ():
                yield language_pb2.InstallDependenciesResponse(stdout=line)
        if process.returncode:
            context.abort(grpc.StatusCode.INTERNAL, f"tools/setup/setup.sh ended with exit status {process.returncode}")

    def RuntimeOptionsPrompts(self, request: Any, context: grpc.ServicerContext) -> language_pb2.RuntimeOptionsResponse:
        """`pulumi new` is answered by the project's Pulumi.yaml; there is nothing to ask."""
        return language_pb2.RuntimeOptionsResponse()

    def About(self, request: language_pb2.AboutRequest, context: grpc.ServicerContext) -> language_pb2.AboutResponse:
        """Interpreter and version, and that this is not the official host."""
        try:
            environment = project_environment(request.info)
            version = environment.describe()["version"]
        except EnvironmentNotUsableError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        metadata = {"language host": "stand-in of h100-inference"}
        return language_pb2.AboutResponse(executable=str(environment.interpreter), version=version, metadata=metadata)

    def GetProgramDependencies(
        self, request: language_pb2.GetProgramDependenciesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetProgramDependenciesResponse:
        """All installed packages: which of them are direct is known to requirements/*.in, not to the environment."""
        try:
            packages = project_environment(request.info).describe()["packages"]
        except EnvironmentNotUsableError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        dependencies = [language_pb2.DependencyInfo(name=name, version=version) for name, version in packages]
        return language_pb2.GetProgramDependenciesResponse(dependencies=dependencies)
