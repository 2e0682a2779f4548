"""Disks and their sharing, quota."""

import pytest

from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import RefusedError


@pytest.fixture
def ground(azure):
    b.group(azure)
    network = b.vnet(azure)
    return azure, network


# --- disks


@pytest.mark.parametrize(
    ("sku", "size", "most"),
    [
        ("Premium_LRS", 512, 3),
        ("Premium_LRS", 513, 5),
        ("Premium_LRS", 1024, 5),
        ("Premium_LRS", 4096, 5),
        ("Premium_LRS", 4097, 10),
        ("StandardSSD_LRS", 1024, 5),
        ("Standard_LRS", 1024, 1),
        ("PremiumV2_LRS", 64, 15),
        ("UltraSSD_LRS", 64, 15),
    ],
)
def test_max_shares_by_sku_and_size(ground, sku, size, most):
    azure, _ = ground
    body = {"sku": {"name": sku}, "diskSizeGB": size, "zones": ["1"]}
    assert b.disk(azure, "fits", **body, maxShares=most).id
    with pytest.raises(RefusedError, match=rf"maxShares' is out of range. The maximum .* is {most}\."):
        b.disk(azure, "too-many", **body, maxShares=most + 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"diskSizeGB": None}, "'disk.diskSizeGB' is missing"),
        (
            {"sku": {"name": "Premium_XRS"}},
            "BadRequest.*'sku.name' has the value 'Premium_XRS'; allowed: .*PremiumV2",
        ),
        ({"burstingEnabled": True}, "burstingEnabled' is not allowed with maxShares"),
        ({"diskIOPSReadWrite": 5000}, "not allowed for sku 'Premium_LRS'"),
        ({"sku": {"name": "PremiumV2_LRS"}}, "must be created in an availability zone in 'eastus'"),
        (
            {"sku": {"name": "PremiumV2_LRS"}, "zones": ["1"], "diskIOPSReadWrite": 100},
            "diskIOPSReadWrite' is out of range",
        ),
        ({"sku": {"name": "PremiumV2_LRS"}, "zones": ["1"], "diskMBpsReadWrite": 800}, "125 to 750 at 3000 IOPS"),
    ],
)
def test_a_disk_that_makes_no_sense(ground, change, words):
    azure, _ = ground
    with pytest.raises(RefusedError, match=words):
        b.disk(azure, **change)


def test_premium_v2_may_lack_a_zone_where_there_are_none(ground):
    azure, _ = ground
    assert b.disk(azure, sku={"name": "PremiumV2_LRS"}, location="northcentralus").id


def test_a_shared_disk_needs_caching_none(ground):
    azure, network = ground
    disk = b.disk(azure)
    nic = b.nic(azure, network)
    for caching in ("ReadOnly", "ReadWrite", None):
        with pytest.raises(RefusedError, match=r"caching '.*' is not supported for a shared disk: 'models'"):
            b.vm(azure, nic, disks=(b.data_disk(disk, caching=caching),))
    assert b.vm(azure, nic, disks=(b.data_disk(disk),)).id


def test_zones_of_disk_and_vm(ground):
    azure, network = ground
    zonal = b.disk(azure, "zonal", sku={"name": "PremiumV2_LRS"}, zones=["1"])
    plain = b.disk(azure, "plain")
    nic = b.nic(azure, network)
    with pytest.raises(RefusedError, match=r"VM node-1 is not zonal"):
        b.vm(azure, nic, disks=(b.data_disk(zonal),))
    with pytest.raises(RefusedError, match=r"VM zone: '2'. Disk zone: '1'"):
        b.vm(azure, nic, disks=(b.data_disk(zonal),), zones=["2"])
    with pytest.raises(RefusedError, match=r"not in zone '1', where the VM is"):
        b.vm(azure, nic, disks=(b.data_disk(plain),), zones=["1"])
    assert b.vm(azure, nic, disks=(b.data_disk(zonal),), zones=["1"]).id


def test_more_vms_than_max_shares(ground):
    azure, network = ground
    disk = b.disk(azure, maxShares=2)
    for number in (1, 2):
        b.vm(azure, b.nic(azure, network, f"nic-{number}"), f"node-{number}", (b.data_disk(disk),))
    with pytest.raises(RefusedError, match=r"attached to 2 VMs and its maxShares is 2"):
        b.vm(azure, b.nic(azure, network, "nic-3"), "node-3", (b.data_disk(disk),))


def test_an_unshared_disk_serves_one_vm(ground):
    azure, network = ground
    disk = b.disk(azure, maxShares=1)
    b.vm(azure, b.nic(azure, network), "node-1", (b.data_disk(disk),))
    with pytest.raises(RefusedError, match=r"ConflictingUserInput.*A disk can be attached to only one VM at a time"):
        b.vm(azure, b.nic(azure, network, "nic-2"), "node-2", (b.data_disk(disk),))


def test_two_vms_attaching_one_disk_at_once(ground):
    azure, network = ground
    disk = b.disk(azure)
    nics = [b.nic(azure, network, f"nic-{number}") for number in (1, 2)]
    words = r"OperationNotAllowed.*Resource is being used by another operation.*disks/models"
    with (
        azure.under_way("node-1", b.vm, azure, nics[0], "node-1", (b.data_disk(disk),)),
        pytest.raises(RefusedError, match=words),
    ):
        b.vm(azure, nics[1], "node-2", (b.data_disk(disk),))
    assert b.vm(azure, nics[1], "node-2", (b.data_disk(disk),)).id


def test_a_disk_cannot_change_while_a_vm_attaches_it(ground):
    azure, network = ground
    disk = b.disk(azure)
    nic = b.nic(azure, network)
    with (
        azure.under_way("node-1", b.vm, azure, nic, "node-1", (b.data_disk(disk),)),
        pytest.raises(RefusedError, match=r"Resource is being used by another operation"),
    ):
        azure.change(disk, tags={"a": "b"})


def test_luns_and_number_of_disks(ground):
    azure, network = ground
    nic = b.nic(azure, network)
    disks = [b.disk(azure, f"d{number}") for number in range(9)]
    with pytest.raises(RefusedError, match=r"A disk at LUN 0 already exists"):
        b.vm(azure, nic, disks=(b.data_disk(disks[0]), b.data_disk(disks[1])))
    with pytest.raises(RefusedError, match=r"maximum number of data disks allowed.* is 8"):
        b.vm(azure, nic, disks=tuple(b.data_disk(disk, lun) for lun, disk in enumerate(disks)))


def test_an_attached_disk_stays_and_keeps_its_shape(ground):
    azure, network = ground
    disk = b.disk(azure)
    vm = b.vm(azure, b.nic(azure, network), disks=(b.data_disk(disk),))
    live = azure.refresh(disk)
    assert live.outputs["diskState"] == "Attached" and live.outputs["managedByExtended"] == [vm.id]
    assert live.inputs == disk.inputs
    with pytest.raises(
        RefusedError, match=r'Code="OperationNotAllowed" Message="Disk models is attached to VM .*node-1'
    ):
        azure.delete(disk)
    with pytest.raises(RefusedError, match=r"'maxShares'.*only be changed while the disk is detached"):
        azure.change(disk, maxShares=3)
    with pytest.raises(RefusedError, match=r"'diskSizeGB'.*only be changed while the disk is detached"):
        azure.change(disk, diskSizeGB=2048)
    azure.delete(vm)
    assert azure.refresh(disk).outputs["diskState"] == "Unattached"
    assert azure.change(disk, maxShares=3, diskSizeGB=2048).outputs["maxShares"] == 3


def test_disks_do_not_shrink_or_change_zone(ground):
    azure, _ = ground
    disk = b.disk(azure)
    with pytest.raises(RefusedError, match=r"cannot be made smaller"):
        azure.change(disk, diskSizeGB=512)
    with pytest.raises(RefusedError, match=r"PropertyChangeNotAllowed.*'zones'"):
        azure.change(disk, zones=["1"])


# --- quota


def test_family_quota_counts_live_vms(ground):
    azure, network = ground
    azure.set_faults({"quota": {"standardncadsh100v5family": 80}})
    for number in (1, 2):
        b.vm(azure, b.nic(azure, network, f"nic-{number}"), f"node-{number}")
    third = b.nic(azure, network, "nic-3")
    with pytest.raises(
        RefusedError, match=r"QuotaExceeded.*approved StandardNCadsH100v5Family Cores.*Limit: 80, Current Usage: 80"
    ):
        b.vm(azure, third, "node-3")


def test_regional_quota(ground):
    azure, network = ground
    azure.set_faults({"quota": {"cores": 39}})
    with pytest.raises(RefusedError, match=r"approved Total Regional Cores quota.*Current Limit: 39.*Required: 40"):
        b.vm(azure, b.nic(azure, network))


def test_spot_has_its_own_quota(ground):
    azure, network = ground
    azure.set_faults({"quota": {"cores": 0, "StandardNCadsH100v5Family": 0, "lowPriorityCores": 40}})
    b.vm(azure, b.nic(azure, network), priority="Spot", evictionPolicy="Deallocate")
    with pytest.raises(RefusedError, match=r"approved LowPriorityCores quota"):
        b.vm(azure, b.nic(azure, network, "nic-2"), "node-2", priority="Spot")


def test_a_resize_counts_the_difference_only(ground):
    azure, network = ground
    azure.set_faults({"quota": {"StandardNCadsH100v5Family": 80}})
    vm = b.vm(azure, b.nic(azure, network))
    assert azure.change(vm, hardwareProfile={"vmSize": "Standard_NC80adis_H100_v5"}).id
