"""A picture of a stack, drawn from its plan: network, nodes, gateway, stores, and who may call whom.

Here everything gets its place; what shapes look like is in templates/picture.svg.j2. Three columns: who comes in, the
VNet with a row for each subnet, and what the nodes use.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloud_init import templating
from infra.reports import TEMPLATES
from infra.reports.shapes import LINE_SIZE, Arrow, Box, Row, at_end, room
from plan.azure.model import AzurePlan
from plan.azure_facts import VmSize
from plan.azure_network import PrivateLink
from plan.model import NodePlan
from plan.vocabulary import GatewayInbound, ModelStoreKind, PublicAccess, Segment, Topology

WIDTH = 1240
_MARGIN = 32
_LEFT_WIDTH, _RIGHT_WIDTH = 236, 240
_VNET, _VNET_WIDTH = 348, 552
_RIGHT = WIDTH - _MARGIN - _RIGHT_WIDTH
_ROW, _ROW_WIDTH = _VNET + 16, _VNET_WIDTH - 32
_TOP, _GAP = 92, 44
_LANE = 46
"""Kept free beside the rows under the nodes where Bastion's arrow passes."""
_CARD_WIDTH, _CARD_HEIGHT, _CARD_GAP = 246, 116, 12
_MOST_CARDS = 6
_LINE = 18
_LINKED = {PrivateLink.VAULT: "Key Vault", PrivateLink.GATEWAY: "gateway", PrivateLink.FILES: "model files (NFS)"}
_TABLE_TEXT = 126
"""Characters of a table line before it wraps."""


@dataclass(frozen=True)
class _Rows:
    """The subnets from top to bottom; the anchor of everything else."""

    gateway: Box
    nodes: Box
    endpoints: Box
    bastion: Box | None

    @property
    def last(self) -> Box:
        return self.bastion or self.endpoints

    @property
    def boxes(self) -> tuple[Box, ...]:
        rows = (self.gateway, self.nodes, self.endpoints, self.bastion)
        return tuple(row for row in rows if row is not None)


def write(plan: AzurePlan, path: Path) -> None:
    """Write a stack's picture to a file."""
    path.write_text(render(plan), encoding="utf-8")


def render(plan: AzurePlan) -> str:
    """A stack's picture as SVG text."""
    rows = _subnets(plan)
    network = Box(
        "network",
        _VNET,
        _TOP,
        _VNET_WIDTH,
        rows.last.bottom + 18 - _TOP,
        f"{plan.names.vnet}  {plan.addresses.address_space}",
    )
    shapes: list[Box | Arrow] = [
        network,
        *rows.boxes,
        *_cards(plan, rows.nodes),
        *_way_in(plan, rows),
        *_operators(rows),
        *_outbound(plan, rows),
        *_stores(plan, rows),
    ]
    boxes = [shape for shape in shapes if isinstance(shape, Box)]
    table_y = max(box.bottom for box in boxes) + 48
    table = tuple(_table(plan, table_y + 30))
    return (
        templating.environment(TEMPLATES)
        .get_template("picture.svg.j2")
        .render(
            width=WIDTH,
            height=table[-1].y + _LINE * len(table[-1].lines) + 12,
            margin=_MARGIN,
            title=f"{plan.stack}: {len(plan.nodes)} x {plan.compute.size.name}",
            subtitle=_subtitle(plan),
            boxes=boxes,
            arrows=[shape for shape in shapes if isinstance(shape, Arrow)],
            table=table,
            table_y=table_y,
            line=_LINE,
        )
    )


def _subtitle(plan: AzurePlan) -> str:
    zone = f", zone {plan.compute.zone}" if plan.compute.zone else ""
    models = ", ".join(model.name for model in plan.serving.models)
    text = f"{plan.names.resource_group} in {plan.location}{zone}  |  {plan.serving.topology}: {models}"
    return at_end(text, room(WIDTH - 2 * _MARGIN, LINE_SIZE))


def _subnets(plan: AzurePlan) -> _Rows:
    narrow = _ROW_WIDTH - (_LANE if plan.has_bastion_subnet else 0)
    node_rows = (min(len(plan.nodes), _MOST_CARDS) + 1) // 2
    nodes_height = 40 + node_rows * (_CARD_HEIGHT + _CARD_GAP) + 26
    gateway = _row(plan, Segment.GATEWAY, _TOP + 44, 142 if plan.gateway.injected else 64, _ROW_WIDTH)
    nodes = _row(plan, Segment.NODES, gateway.bottom + _GAP, nodes_height, _ROW_WIDTH)
    endpoints = _row(plan, Segment.ENDPOINTS, nodes.bottom + _GAP, 84, narrow)
    bastion = _row(plan, Segment.BASTION, endpoints.bottom + 22, 64, narrow) if plan.has_bastion_subnet else None
    return _Rows(gateway, nodes, endpoints, bastion)


def _row(plan: AzurePlan, segment: Segment, y: int, height: int, width: int) -> Box:
    title = f"{plan.names.subnet(segment)}  {plan.addresses.subnets[segment]}"
    return Box("subnet", _ROW, y, width, height, title, _row_lines(plan, segment))


def _row_lines(plan: AzurePlan, segment: Segment) -> tuple[str, ...]:
    match segment:
        case Segment.GATEWAY if not plan.gateway.injected:
            return ("the gateway reaches in from here; nothing listens",)
        case Segment.ENDPOINTS:
            names = ", ".join(_LINKED[link] for link in plan.network.private_links)
            return ("private endpoints, with private DNS:", names)
        case Segment.BASTION:
            return (f"Azure Bastion {plan.access.bastion_sku}" + (", tunnels" if plan.access.tunnel else ""),)
        case _:
            return ()


def _cards(plan: AzurePlan, row: Box) -> Iterator[Box]:
    nodes = plan.nodes
    shown = nodes if len(nodes) <= _MOST_CARDS else nodes[: _MOST_CARDS - 1]
    for index, node in enumerate(shown):
        yield _card(row, index, node.name, _node_lines(plan, node), node.role.value)
    if hidden := nodes[len(shown) :]:
        lines = (f"{hidden[0].address} to {hidden[-1].address}", "same size")
        yield _card(row, len(shown), f"and {len(hidden)} more", lines, "")
    spread = plan.serving.topology is Topology.DISTRIBUTED
    text = "node to node: Ray, and one model across all nodes" if spread else "node to node: Ray"
    yield Box("note", row.x, row.bottom - 30, row.width, 26, text)


def _card(row: Box, index: int, title: str, lines: tuple[str, ...], tag: str) -> Box:
    x = row.x + 8 + (index % 2) * (_CARD_WIDTH + _CARD_GAP)
    y = row.y + 40 + (index // 2) * (_CARD_HEIGHT + _CARD_GAP)
    return Box("node", x, y, _CARD_WIDTH, _CARD_HEIGHT, title, lines, tag)


def _node_lines(plan: AzurePlan, node: NodePlan) -> tuple[str, ...]:
    size, copies = plan.compute.size, plan.serving.copies(node.model)
    return (
        f"{node.address}:{plan.serving.wrapper_port}",
        _computes_on(size),
        f"local NVMe {size.local_nvme_gib} GiB",
        f"{copies} x {node.model}" if copies > 1 else node.model,
    )


def _computes_on(size: VmSize) -> str:
    if size.gpus == 0:
        return f"{size.vcpus} vCPUs, no GPU"
    return f"{size.gpus} x {size.gpu.upper().replace('-', ' ')}, {round(size.vram_mib / 1024)} GiB"


def _way_in(plan: AzurePlan, rows: _Rows) -> Iterator[Box | Arrow]:
    """The gateway, its clients, and its way to the nodes."""
    gateway, wrapper = plan.gateway, str(plan.serving.wrapper_port)
    down = (rows.gateway.centre, rows.nodes.y)
    yield Arrow(
        ((rows.gateway.centre, rows.gateway.bottom), down),
        f"{wrapper}, with the backend key",
        (down[0] + 10, down[1] - 16),
        "start",
    )
    products = f"products: {', '.join(product.id for product in gateway.products)}"
    lines = (plan.gateway.name, f"{gateway.facts.tier}, units: {gateway.units}", products)
    if gateway.injected:
        row = rows.gateway
        yield Box("service", row.x + 8, row.y + 38, row.width - 16, row.height - 46, "API Management", lines)
        clients = _left("client", row.middle - 32, 64, "Client applications", (f"{gateway.inbound}, product keys",))
        yield clients
        yield _across(clients, row, "443")
        return
    service = _left("service", rows.gateway.y - 20, 104, "API Management", lines)
    yield service
    yield _across(service, rows.gateway, "out", rows.gateway.middle)
    if gateway.inbound is GatewayInbound.PUBLIC:
        clients = _left("client", service.bottom + 76, 64, "Client applications", ("Internet, product keys",))
        yield clients
        up = (clients.centre, service.bottom)
        yield Arrow(((clients.centre, clients.y), up), "443", (up[0] + 10, up[1] + 42), "start")
        return
    clients = _left("client", rows.endpoints.y + 4, 64, "Client applications", ("this network and its peers",))
    yield clients
    yield _across(clients, rows.endpoints, "443")
    bend = service.right + 30
    yield Arrow(
        (
            (rows.endpoints.x, rows.endpoints.y + 14),
            (bend, rows.endpoints.y + 14),
            (bend, service.bottom - 22),
            (service.right, service.bottom - 22),
        ),
        "private link",
        (bend - 8, rows.nodes.middle),
        "end",
    )
    if gateway.public_access is PublicAccess.ENABLED:
        x = service.x + 60
        yield Arrow(((x, clients.y), (x, service.bottom)), "443, public", (x + 10, rows.nodes.y + 24), "start", "open")


def _left(kind: str, y: int, height: int, title: str, lines: tuple[str, ...]) -> Box:
    return Box(kind, _MARGIN, y, _LEFT_WIDTH, height, title, lines)


def _right(kind: str, y: int, height: int, title: str, lines: tuple[str, ...]) -> Box:
    return Box(kind, _RIGHT, y, _RIGHT_WIDTH, height, title, lines)


def _across(source: Box, target: Box, label: str, y: int | None = None) -> Arrow:
    """From one box straight to its neighbour on the right, labelled between the VNet and the outer column."""
    y = source.middle if y is None else y
    gap = (source.right + _VNET) // 2 if target.x < _RIGHT else (_VNET + _VNET_WIDTH + target.x) // 2
    return Arrow(((source.right, y), (target.x, y)), label, (gap, y - 8))


def _operators(rows: _Rows) -> Iterator[Box | Arrow]:
    if rows.bastion is None:
        return
    people = _left("client", rows.bastion.y, 64, "Operators", ("signed in with Entra",))
    yield people
    yield _across(people, rows.bastion, "443")
    lane = rows.nodes.right - _LANE // 2
    yield Arrow(
        ((rows.bastion.right, rows.bastion.middle), (lane, rows.bastion.middle), (lane, rows.nodes.bottom)),
        "22",
        (lane - 6, rows.nodes.bottom + 24),
        "end",
    )


def _outbound(plan: AzurePlan, rows: _Rows) -> Iterator[Box | Arrow]:
    internet = _right("client", _TOP, 60, "Internet", ("packages and model hub",))
    nat = _right("service", rows.nodes.y, 76, "NAT gateway", (plan.names.nat_gateway, "outbound only, no way in"))
    yield internet
    yield nat
    yield _across(rows.nodes, nat, "out", nat.middle)
    yield Arrow(
        ((nat.centre, nat.y), (nat.centre, internet.bottom)),
        "one fixed address",
        (nat.centre + 10, (nat.y + internet.bottom) // 2 + 4),
        "start",
    )


def _stores(plan: AzurePlan, rows: _Rows) -> Iterator[Box | Arrow]:
    """Model store and Key Vault, each beside the row that reaches it."""
    store, endpoints = plan.store, rows.endpoints
    x = rows.nodes.x + 60
    ports = "443, 2049" if store.kind is ModelStoreKind.AZURE_FILES else "443"
    yield Arrow(((x, rows.nodes.bottom), (x, endpoints.y)), ports, (x + 10, endpoints.y - 16), "start")
    vault = _right("store", endpoints.y + 4, 76, "Key Vault", (plan.names.key_vault, "backend key, Ray token"))
    yield vault
    yield _across(endpoints, vault, "443", vault.middle)
    if store.kind is ModelStoreKind.AZURE_FILES:
        files = _right("store", vault.bottom + 16, 76, "Azure Files", _store_lines(plan))
        yield files
        bend = files.x - 20
        points = ((endpoints.right, endpoints.bottom - 12), (bend, endpoints.bottom - 12), (bend, files.middle))
        yield Arrow((*points, (files.x, files.middle)), "2049", (bend - 6, files.middle + 4), "end")
        return
    disk = _right("store", rows.nodes.bottom - 100, 96, "Model disk", _store_lines(plan))
    yield disk
    yield _across(rows.nodes, disk, f"LUN {store.lun}", disk.middle)


def _store_lines(plan: AzurePlan) -> tuple[str, ...]:
    store = plan.store
    if store.kind is ModelStoreKind.AZURE_FILES:
        return (plan.names.storage_account, f"{store.size_gib} GiB at {plan.paths.models}")
    return (
        plan.names.model_disk,
        f"{store.size_gib} GiB {store.sku}",
        f"read-only at {plan.paths.models}",
    )


def _table(plan: AzurePlan, y: int) -> Iterator[Row]:
    """Who may call what, callers and listeners taken together; last what stays on each node."""
    ports: dict[tuple[Segment, Segment], list[str]] = {}
    for flow in plan.port_table:
        for caller in flow.callers:
            text = f"{', '.join(flow.port_ranges)} {flow.name}"
            ports.setdefault((caller, flow.listener), []).append(text)
    loopback = [key for key in ports if key[0] is Segment.LOOPBACK]
    for caller, listener in (*(key for key in ports if key not in loopback), *loopback):
        lines = tuple(textwrap.wrap(" · ".join(ports[caller, listener]), _TABLE_TEXT, break_on_hyphens=False))
        who = "each node itself" if caller is Segment.LOOPBACK else caller.value
        yield Row(y, who, "its loopback" if caller is Segment.LOOPBACK else listener.value, lines)
        y += _LINE * len(lines) + 8
