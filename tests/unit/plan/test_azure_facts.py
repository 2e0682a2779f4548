"""Azure facts as data: they agree with each other and with the numbers that the pages state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle import gpus
from infra.reports.cost import load_prices
from plan.azure_facts import GATEWAY_TIERS, REFUSED_TIERS, SHARED_DISKS, VM_SIZES, TierFacts, VmSize, max_shares
from plan.vocabulary import DiskSku, GatewayInbound, GatewayTier


@pytest.mark.parametrize(
    ("sku", "size_gib", "shares"),
    [
        (DiskSku.PREMIUM, 128, 3),
        (DiskSku.PREMIUM, 512, 3),
        (DiskSku.PREMIUM, 513, 5),
        (DiskSku.PREMIUM, 1024, 5),
        (DiskSku.PREMIUM, 4096, 5),
        (DiskSku.PREMIUM, 4097, 10),
        (DiskSku.PREMIUM_ZRS, 8192, 10),
        (DiskSku.STANDARD_SSD, 512, 3),
        (DiskSku.STANDARD_SSD, 1024, 5),
        (DiskSku.STANDARD_SSD_ZRS, 16_384, 10),
        (DiskSku.PREMIUM_V2, 100, 15),
        (DiskSku.PREMIUM_V2, 65_536, 15),
        (DiskSku.ULTRA, 1024, 15),
    ],
)
def test_how_many_vms_may_share_a_disk(sku: DiskSku, size_gib: int, shares: int) -> None:
    assert max_shares(sku, size_gib) == shares


@given(sku=st.sampled_from(DiskSku), sizes=st.tuples(st.integers(1, 65_536), st.integers(1, 65_536)))
def test_a_larger_disk_never_takes_fewer_vms(sku: DiskSku, sizes: tuple[int, int]) -> None:
    assert max_shares(sku, min(sizes)) <= max_shares(sku, max(sizes))


@pytest.mark.parametrize(
    ("size", "vcpus", "gpu_count", "data_disks", "nic_gbps"),
    [
        ("Standard_NC40ads_H100_v5", 40, 1, 8, 40),
        ("Standard_NC80adis_H100_v5", 80, 2, 16, 80),
        ("Standard_ND96isr_H100_v5", 96, 8, 32, 80),
        ("Standard_ND96isr_H200_v5", 96, 8, 16, 80),
        ("Standard_L8s_v3", 8, 0, 16, 10),
    ],
)
def test_sizes_are_those_of_the_size_pages(
    size: str, vcpus: int, gpu_count: int, data_disks: int, nic_gbps: int
) -> None:
    facts = VM_SIZES[size]
    assert (facts.vcpus, facts.gpus, facts.max_data_disks, facts.nic_gbps) == (vcpus, gpu_count, data_disks, nic_gbps)


@pytest.mark.parametrize("size", [size for size in VM_SIZES.values() if size.gpus], ids=lambda size: size.name)
def test_a_size_has_the_memory_that_the_planner_knows_for_its_gpu(size: VmSize) -> None:
    assert gpus.gpu(size.gpu).memory_mib == size.vram_mib


def test_only_nd_sizes_have_rdma() -> None:
    assert {name for name, size in VM_SIZES.items() if size.rdma} == {name for name in VM_SIZES if "_ND" in name}


def test_every_tier_and_sku_has_facts() -> None:
    assert set(GATEWAY_TIERS) == set(GatewayTier)
    assert set(SHARED_DISKS) == set(DiskSku)
    assert not set(REFUSED_TIERS) & {tier.value for tier in GatewayTier}


@pytest.mark.parametrize("facts", GATEWAY_TIERS.values(), ids=lambda facts: facts.tier)
def test_tiers_are_consistent(facts: TierFacts) -> None:
    tier = facts.tier
    assert GATEWAY_TIERS[tier] is facts
    assert set(facts.delegation) == set(facts.inbound)
    assert set(facts.injected) <= set(facts.inbound)


@pytest.mark.parametrize(
    ("tier", "inbound", "delegation"),
    [
        (GatewayTier.DEVELOPER, GatewayInbound.INTERNAL, None),
        (GatewayTier.PREMIUM, GatewayInbound.PUBLIC, None),
        (GatewayTier.STANDARD_V2, GatewayInbound.PUBLIC, "Microsoft.Web/serverFarms"),
        (GatewayTier.PREMIUM_V2, GatewayInbound.INTERNAL, "Microsoft.Web/hostingEnvironments"),
    ],
)
def test_subnet_delegation_per_tier(tier: GatewayTier, inbound: GatewayInbound, delegation: str | None) -> None:
    assert GATEWAY_TIERS[tier].delegation[inbound] == delegation


def test_prices_are_for_sizes_we_know_and_positive() -> None:
    prices = load_prices()
    assert set(prices.vm_usd_per_hour) == set(VM_SIZES)
    assert all(rate > 0 for regions in prices.vm_usd_per_hour.values() for rate in regions.values())
    one, two = (prices.vm_usd_per_hour[f"Standard_NC{n}_H100_v5"] for n in ("40ads", "80adis"))
    assert {region: round(2 * rate, 3) for region, rate in one.items()} == dict(two)
