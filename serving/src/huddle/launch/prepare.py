"""From what was asked and what is here to a `LaunchRequest`: registry, model store, GPUs, planner, network."""

import contextlib
import math
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from huddle import engine, gpus, media_urls, network, planner, registry, versions
from huddle.errors import InputError
from huddle.launch import copies, gpu_state, processes, tuned
from huddle.launch.command import build
from huddle.launch.request import Device, Executor, LaunchRequest, Node
from huddle.planner import FitResult, speed
from huddle.planner.memory import weight_bytes
from huddle.registry import Flags, KvCacheType, Load, Model, Registry, Served, files
from huddle.registry.prompts import FileMissingError, find_chat_template, read_system_prompt

DEFAULT_GPU = "h100-nvl"  # what a dry run without a GPU assumes (docs/facts/original-systems.md#two-nodes-in-azure)
SLOW_DISK_GB_PER_S = 0.5  # slower than any disk in the plan (612 MB/s is Azure's slowest), for the start's deadline
DEADLINE_FACTOR = 1.5
ENGINE_DEADLINE_S = 600  # vLLM's own default
LAST_PORT = 65_535


class LaunchError(InputError):
    """The engine cannot be started as asked."""


@dataclass(frozen=True)
class Options:
    """What the command line said; None where it said nothing."""

    model: str
    registry_file: Path | None = None
    stores: tuple[Path, ...] = files.DEFAULT_STORES
    workspace: Path = Path("/mnt/nvme/workspace")
    program: str = "vllm"
    device: Device = Device.CUDA
    gpu: str | None = None
    executor: Executor = Executor.MP
    fabric: str = "tcp-40g"
    nodes: int = 1
    node_rank: int = 0
    node_ip: str | None = None
    head: str | None = None
    host: str = "127.0.0.1"
    port: int = 5005
    copy: int = 0
    tensor: int | None = None
    pipeline: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_dtype: KvCacheType | None = None
    prefix_caching: bool | None = None
    load: Load | None = Load.CHAT  # whose tuned flags are used; None: nobody's
    compile_cache: Path | None = None
    utilization: float | None = None
    front_ends: int | None = None
    shutdown_timeout_s: int = 120
    media_url_prefixes: tuple[str, ...] = ()
    ray_token_file: Path | None = None
    allow_download: bool = False
    allow_slow_fabric: bool = False


@dataclass(frozen=True)
class Prepared:
    """A request, what the planner says of it, and remarks for the person who launches."""

    request: LaunchRequest
    fit: FitResult | None
    directory: Path | None
    remarks: tuple[str, ...]


def prepare(options: Options, *, dry: bool) -> Prepared:
    """Decide everything. A dry run needs neither GPU nor files: it says what it assumed instead; files are checked.

    Raises:
        HuddleError: whatever makes the start impossible, before anything is created.
    """
    known = registry.load(options.registry_file)
    served = known.resolve(options.model)
    model = served.model
    remarks: list[str] = []
    directory, path = _model_path(options, served, remarks, dry=dry)
    if directory:
        files.check(directory)
    with contextlib.suppress(FileMissingError):  # a bundle brings its own; an empty one is a mistake wherever it lies
        read_system_prompt(known, served, options.stores)
    tensor = options.tensor or model.tensor_parallel_size
    pipeline = options.pipeline or model.pipeline_parallel_size
    node = _node(options, tensor * pipeline, dry=dry)
    if options.port + options.copy > LAST_PORT:
        raise LaunchError(f"--port {options.port} leaves no port up to {LAST_PORT} for copy {options.copy}")
    request = LaunchRequest(
        served=served,
        served_names=known.served_names(served.name),
        model_path=path,
        local=not options.allow_download or directory is not None,
        tensor=tensor,
        pipeline=pipeline,
        gpu="cpu",
        vllm_version=_version(options, remarks),
        workspace=str(options.workspace),
        node=node,
        copy=options.copy,
        device=options.device,
        executor=options.executor,
        host=options.host,
        port=options.port + options.copy,
        max_model_len=options.max_model_len or model.max_model_len,
        max_num_seqs=options.max_num_seqs or model.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens or model.max_num_batched_tokens,
        kv_cache_dtype=options.kv_cache_dtype or model.kv_cache_dtype,
        prefix_caching=model.enable_prefix_caching if options.prefix_caching is None else options.prefix_caching,
        compile_cache=str(options.compile_cache) if options.compile_cache else None,
        utilization=options.utilization or model.gpu_memory_utilization,
        shutdown_timeout_s=options.shutdown_timeout_s,
        program=options.program,
        chat_template=_chat_template(known, model, directory, path, dry=dry),
        media_hosts=_media_hosts(options),
        ray_token_file=_ray_token(options),
        front_ends=options.front_ends or 1,
    )
    request, fit = _with_gpus(request), None
    if options.device is Device.CUDA:
        request, fit = _plan(options, request, remarks, dry=dry)
    else:
        request, _ = _tuned(options, request, remarks)
    _check_words(request)
    return Prepared(request, fit, directory, tuple(remarks))


def preflight(prepared: Prepared, *, clear_leftovers: bool) -> tuple[str, ...]:
    """Look at the node right before the start. Returns what was done about leftovers.

    Raises:
        HuddleError: port taken, workspace missing, program missing, GPU memory held.
    """
    request = prepared.request
    if shutil.which(request.program) is None:
        raise LaunchError(f"no program {request.program!r} on PATH; install vLLM, or name it with --vllm")
    if not Path(request.workspace).is_dir():
        raise LaunchError(f"the workspace {request.workspace} does not exist; create it or give --workspace")
    if not os.access(request.workspace, os.W_OK):
        raise LaunchError(f"the workspace {request.workspace} is not writable by this user; give --workspace")
    done = _deal_with_leftovers(request.slot, clear=clear_leftovers)
    if request.node.leads:
        network.check_port(request.host, request.port)
    if request.device is Device.CUDA and request.executor is not Executor.RAY:
        _check_gpus(request)
    return done


def _check_gpus(request: LaunchRequest) -> None:
    """Enough GPUs, and enough free memory on those that the engine will take. (Ray has its own idea of which.)"""
    share = _share(request)
    states = gpu_state.read()
    if (missing := share.shortage(len(states))) is not None:
        raise LaunchError(missing)
    problems = gpu_state.memory_problems(states[share.places], request.utilization)
    if problems:
        raise LaunchError(*problems)


def _share(request: LaunchRequest) -> copies.Share:
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return copies.Share(request.tensor, request.pipeline, request.node.count, request.copy, given)


def _with_gpus(request: LaunchRequest) -> LaunchRequest:
    """Name the GPUs of this copy. An engine over several nodes, or one that spreads itself, takes what it finds."""
    one_node = request.node.count == 1 and request.executor is not Executor.RAY
    spreads = copies.spreads_itself(request.served.model.extra_args)
    if request.copy and (not one_node or spreads):
        why = "its extra-args have data parallel" if spreads else "it spans nodes, or Ray places it"
        raise LaunchError(f"--copy {request.copy}: of {request.served.name!r} there is one engine here, since {why}")
    if request.device is not Device.CUDA or not one_node or spreads:
        return request
    share = _share(request)
    if (missing := share.shortage_of_given) is not None:
        raise LaunchError(missing)
    return replace(request, visible_gpus=share.names)


def _deal_with_leftovers(slot: str, *, clear: bool) -> tuple[str, ...]:
    left = processes.leftovers(slot)
    if not left:
        return ()
    names = ", ".join(f"{process.pid} ({process.name()})" for process in left)
    if not clear:
        raise LaunchError(
            f"processes of an earlier launch are left without their launcher: {names}; "
            "end them, or use --clear-leftovers"
        )
    stuck = processes.end(left, 10.0)
    if stuck:
        raise LaunchError(f"could not end {', '.join(str(p.pid) for p in stuck)}: stuck in the kernel; reboot the node")
    return (f"ended what an earlier launch had left: {names}",)


def _model_path(options: Options, served: Served, remarks: list[str], *, dry: bool) -> tuple[Path | None, str]:
    directory = files.locate(served.model, options.stores)
    if directory:
        return directory, str(directory)
    if options.allow_download:
        return None, served.model.model
    looked = [str(store / served.model.store_directory) for store in options.stores]
    if not dry:
        raise LaunchError(
            f"the files of {served.name!r} are in no model store; looked for {', '.join(looked)}; publish the model, "
            "give --store, or --allow-download"
        )
    remarks.append(f"the model's files are not here; the command says where they belong: {looked[-1]}")
    return None, looked[-1]


def _chat_template(known: Registry, model: Model, directory: Path | None, path: str, *, dry: bool) -> str | None:
    try:
        found = find_chat_template(known, model, directory)
    except FileMissingError:
        if directory or not dry:
            raise
        found = Path(path) / str(model.chat_template)  # among the files that a dry run supposes
    return str(found) if found else None


def _node(options: Options, world: int, *, dry: bool) -> Node:
    rdma = gpus.fabric(options.fabric).rdma
    if options.node_rank >= options.nodes:
        raise LaunchError(f"--node-rank {options.node_rank} is not below --nodes {options.nodes}; ranks count from 0")
    if world % options.nodes:
        raise LaunchError(f"TP × PP is {world}, which {options.nodes} nodes cannot share evenly")
    several = options.nodes > 1 or options.executor is Executor.RAY
    if several and not options.node_ip:
        raise LaunchError("--node-ip is missing: with several nodes each must know its own private address")
    if options.nodes > 1 and not options.head:
        raise LaunchError("--head is missing: with several nodes each must know the address of rank 0")
    if options.executor is Executor.RAY and options.node_rank:
        raise LaunchError(
            "with --executor ray only the head launches an engine; other nodes join with "
            f"ray start --address={options.head}:6379 --node-ip-address={options.node_ip}"
        )
    ip = options.node_ip or "127.0.0.1"
    try:
        interface = network.interface_of(ip)
    except network.NetworkError:
        if not dry:
            raise
        interface = "eth0"
    return Node(
        ip=ip,
        interface=interface,
        rank=options.node_rank,
        count=options.nodes,
        head=options.head or ip,
        rdma=rdma,
    )


def _plan(
    options: Options, request: LaunchRequest, remarks: list[str], *, dry: bool
) -> tuple[LaunchRequest, FitResult]:
    """Ask the planner, with the GPUs that are here; a dry run takes the given or the default type."""
    per_node = request.world // request.node.count
    gpu = options.gpu or _present_gpu(request, remarks, dry=dry)
    request, flags = _tuned(options, replace(request, gpu=gpus.gpu(gpu).name), remarks)
    fit = planner.check(
        request.served.model,
        gpu=gpu,
        gpus_per_node=per_node,
        nodes=request.node.count,
        tp=request.tensor,
        pp=request.pipeline,
        fabric=options.fabric,
        max_model_len=request.max_model_len,
        max_num_seqs=request.max_num_seqs,
        gpu_memory_utilization=request.utilization,
        allow_slow_fabric=options.allow_slow_fabric,
        stores=options.stores,
    )
    if not fit.fits:
        raise LaunchError(*fit.refusals)
    remarks += fit.notes
    # Several front ends were measured on one node only.
    untold = fit.front_ends if request.node.count == 1 else 1
    front_ends = options.front_ends or flags.api_server_count or untold
    return replace(request, front_ends=front_ends, ready_timeout_s=_deadline(fit)), fit


def _tuned(options: Options, request: LaunchRequest, remarks: list[str]) -> tuple[LaunchRequest, Flags]:
    """The flags that a sweep found best for this engine on these GPUs; what the command line says wins."""
    if options.load is None or request.node.count > 1:  # a sweep is of one node
        return request, Flags()
    found, said = tuned.find(request, options.load)
    remarks += [said] if said else []
    flags = found.flags if found else Flags()
    caching = flags.enable_prefix_caching if options.prefix_caching is None else options.prefix_caching
    changed = replace(
        request,
        max_num_seqs=options.max_num_seqs or flags.max_num_seqs or request.max_num_seqs,
        max_num_batched_tokens=(
            options.max_num_batched_tokens or flags.max_num_batched_tokens or request.max_num_batched_tokens
        ),
        kv_cache_dtype=options.kv_cache_dtype or flags.kv_cache_dtype or request.kv_cache_dtype,
        prefix_caching=request.prefix_caching if caching is None else caching,
        front_ends=options.front_ends or flags.api_server_count or request.front_ends,
    )
    return changed, flags


def _deadline(fit: FitResult) -> int:
    """Seconds that the start may take: vLLM's own deadline would end the slow load of a big model."""
    weights_gb = weight_bytes(fit.shape, fit.layout) * fit.hardware.gpus_per_node / 1e9
    slowest = speed.start_s(fit.shape, fit.layout, cold=True, read_gb_per_s=SLOW_DISK_GB_PER_S, weights_gb=weights_gb)
    return max(ENGINE_DEADLINE_S, math.ceil(slowest * DEADLINE_FACTOR / 60) * 60)


def _present_gpu(request: LaunchRequest, remarks: list[str], *, dry: bool) -> str:
    """The type of the GPUs that the copy takes; a dry run may go without any."""
    share = _share(request)
    try:
        states = gpu_state.read()
    except gpu_state.GpuError:
        if not dry:
            raise
        remarks.append(f"no GPU here; planned for {DEFAULT_GPU} (say --gpu for another)")
        return DEFAULT_GPU
    if share.places.start >= len(states):
        raise LaunchError(str(share.shortage(len(states))))
    title = states[share.places.start].title
    known = gpus.gpu_by_smi_name(title)
    if known is None:
        raise LaunchError(f"{title!r} is not in the GPU table; name the nearest with --gpu ({_gpu_names()})")
    return known.name


def _ray_token(options: Options) -> str | None:
    """The file with Ray's token: the named one, or the one that systemd hands to the unit."""
    if options.ray_token_file:
        return str(options.ray_token_file)
    credential = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent")) / "ray_token"
    return str(credential) if credential.is_file() else None


def _media_hosts(options: Options) -> tuple[str, ...]:
    try:
        return media_urls.hosts(options.media_url_prefixes)
    except ValueError as error:
        raise LaunchError(f"--media-url-prefix: {error}") from None


def _version(options: Options, remarks: list[str]) -> str:
    """The version of the engine that will run; the pin when the program does not say or is not here."""
    program = shutil.which(options.program)
    found = engine.installed_version(Path(program)) if program else None
    if found:
        return found
    pinned = versions.load().engine.vllm
    remarks.append(f"vLLM's version is not known here; taken to be the pinned {pinned}")
    return pinned


def _check_words(request: LaunchRequest) -> None:
    interface = engine.interface(request.vllm_version)
    if interface is None:
        return
    objections = list(interface.objections(build(request).argv))
    if objections:
        raise LaunchError(*objections)


def _gpu_names() -> str:
    return ", ".join(dict.fromkeys(gpu.name for gpu in gpus.gpus().values()))
