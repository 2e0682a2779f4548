"""One GPU node: network interface, VM, the run commands that make it serve, and its nightly shutdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pulumi
from pulumi_azure_native import compute, devtestlab, network

from components import attempts
from components.attempts import Parameter
from components.scope import StackScope
from plan.azure.model import ComputePlan
from plan.model import NodePlan
from plan.vocabulary import ImageSecurity, Priority

PREPARE = "prepare"
APPLY = "apply"
APPLY_TIMEOUT_S = 4500
"""How long a node may take from first boot to its first completion: packages, weights to NVMe, engine start. Longer
than the deadlines on the node together (`node_facts.longest_s`), so that the node says why; and 15 minutes less than
Azure waits for an extension, for the VM's agent to see the command and to tell its end (docs/facts/azure.md#vm-agent).
"""

REPLACING_CHANGES: tuple[str, ...] = (
    "location",
    "zones",
    "priority",
    "osProfile",
    "securityProfile",
    "storageProfile.imageReference",
    "storageProfile.osDisk.name",
    "storageProfile.osDisk.diskSizeGB",
    "storageProfile.diskControllerType",
)
"""What Azure only takes at creation (docs/facts/azure.md#vm-changes-refused); the provider replaces on names alone.
In wire case, or a path matches nothing (docs/facts/pulumi.md#names-of-properties). An OS disk could grow on a
deallocated VM, but it holds nothing that a new node would not have."""

PART_TIMEOUT_S = 600
"""How long the delivery of one part of a bundle may take."""

_VM_TIMEOUTS = pulumi.CustomTimeouts(create="60m", update="60m", delete="60m")
_APPLY_TIMEOUTS = pulumi.CustomTimeouts(create="100m", update="100m", delete="20m")
_PART_TIMEOUTS = pulumi.CustomTimeouts(create="30m", update="30m", delete="20m")


def command_name(name: str) -> str:
    """What Azure calls one of a node's run commands."""
    return f"huddle-{name}"


@dataclass(frozen=True)
class Scripts:
    """`prepare` brings the bundle and all that it needs while the old one serves; `apply` switches to it.

    Each fails if it can't.
    """

    prepare: pulumi.Input[str]
    apply: pulumi.Input[str]


@dataclass(frozen=True)
class GpuNodeArgs:
    """`custom_data` is base64. `scripts` bring the bundle `bundle_digest` and make the node serve it.

    Without them nothing is run by Azure: the bundle comes another way (components/remote_node.py). `part_scripts`
    bring the bundle's parts, by the pieces' names (cloud_init/bundle/parts.py); the node keeps them.

    `vm_after`: the VM that attached the shared disk before this one. `prepare_after`: what the scripts need (secrets,
    roles, endpoints). `turn_after`: nodes that must serve again before this one leaves.
    """

    scope: StackScope
    compute: ComputePlan
    node: NodePlan
    subnet_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    model_disk_id: pulumi.Input[str] | None
    model_disk_lun: int | None
    custom_data: pulumi.Input[str]
    scripts: Scripts | None
    part_scripts: Mapping[str, str]
    bundle_digest: str
    vm_after: pulumi.Resource | None
    prepare_after: Sequence[pulumi.Resource]
    turn_after: Sequence[pulumi.Resource] = ()
    secrets_version: pulumi.Input[str] | None = None


class GpuNode(pulumi.ComponentResource):
    """A private GPU VM that serves.

    When it must be replaced it is deleted first, as its name, address and disk slot can only be had once; interface,
    model disk and shutdown schedule stay. The deployment fails if the node does not answer a real request.
    """

    vm: pulumi.Resource
    """The VM, for those that must come after it."""
    vm_id: pulumi.Output[str]
    """ARM id of the VM."""
    machine_id: pulumi.Output[str]
    """Azure's own id of this one machine: another one when a VM of the same name was replaced."""
    address: pulumi.Output[str]
    """Private address; known once the interface that holds it exists."""
    status: pulumi.Output[str]
    """How the last apply ended, with the bundle it applied: `Succeeded (1a2b3c…)`."""
    applied: pulumi.Resource | None
    """The command that makes it serve, for those that must wait until it does."""
    served_before: bool
    """Whether Azure knows of an earlier run of that command."""

    def __init__(self, name: str, args: GpuNodeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gpu_node:GpuNode", name, None, opts)
        self._name, self._args = name, args
        self._nic = self._interface()
        self._vm = self._machine()
        self._known: set[str] = set()
        """Commands of which Azure has an earlier run."""
        apply = None if args.scripts is None else self._apply(args.scripts)
        self.applied, self.served_before = apply, APPLY in self._known
        if args.compute.auto_shutdown.enabled:
            self._shutdown()
        self.vm, self.vm_id, self.machine_id = self._vm, self._vm.id, self._vm.vm_id
        self.address = self._nic.id.apply(lambda _: str(args.node.address))
        made = pulumi.Output.from_input("made") if apply is None else apply.provisioning_state
        self.status = pulumi.Output.concat(made, f" ({args.bundle_digest[:12]})")
        self.register_outputs({"vm_id": self.vm_id, "address": self.address, "status": self.status})

    def _interface(self) -> network.NetworkInterface:
        """A fixed private address and nothing public."""
        scope, node = self._args.scope, self._args.node
        return network.NetworkInterface(
            f"{self._name}-nic",
            resource_group_name=scope.resource_group_name,
            network_interface_name=scope.names.nic(node.number),
            location=scope.location,
            enable_accelerated_networking=self._args.compute.size.accelerated_networking,
            ip_configurations=[
                network.NetworkInterfaceIPConfigurationArgs(
                    name="private",
                    primary=True,
                    subnet=network.SubnetArgs(id=self._args.subnet_id),
                    private_ip_allocation_method="Static",
                    private_ip_address=str(node.address),
                )
            ],
            tags=scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _machine(self) -> compute.VirtualMachine:
        args, plan = self._args, self._args.compute
        spot = plan.priority is Priority.SPOT
        return compute.VirtualMachine(
            f"{self._name}-vm",
            resource_group_name=args.scope.resource_group_name,
            vm_name=args.node.name,
            location=args.scope.location,
            zones=[plan.zone] if plan.zone else None,
            hardware_profile=compute.HardwareProfileArgs(vm_size=plan.size.name),
            priority="Spot" if spot else "Regular",
            # Deallocate keeps the OS disk and the address; -1 pays up to the regular price, so price evicts nobody.
            eviction_policy="Deallocate" if spot else None,
            billing_profile=compute.BillingProfileArgs(max_price=-1) if spot else None,
            identity=compute.VirtualMachineIdentityArgs(
                type=compute.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[args.identity_id]
            ),
            security_profile=_security_profile(plan.image.security),
            os_profile=self._os_profile(),
            storage_profile=self._storage_profile(),
            additional_capabilities=(
                compute.AdditionalCapabilitiesArgs(ultra_ssd_enabled=True) if args.compute.ultra_disk else None
            ),
            network_profile=compute.NetworkProfileArgs(
                network_interfaces=[
                    compute.NetworkInterfaceReferenceArgs(id=self._nic.id, primary=True, delete_option="Detach")
                ]
            ),
            # Without a storage account Azure keeps the serial log itself; the serial console needs it.
            diagnostics_profile=compute.DiagnosticsProfileArgs(
                boot_diagnostics=compute.BootDiagnosticsArgs(enabled=True)
            ),
            tags=args.scope.tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[args.vm_after] if args.vm_after else None,
                replace_on_changes=list(REPLACING_CHANGES),
                delete_before_replace=True,
                custom_timeouts=_VM_TIMEOUTS,
            ),
        )

    def _os_profile(self) -> compute.OSProfileArgs:
        plan = self._args.compute
        home = f"/home/{plan.admin_username}/.ssh/authorized_keys"
        return compute.OSProfileArgs(
            computer_name=self._args.node.name,
            admin_username=plan.admin_username,
            custom_data=self._args.custom_data,
            allow_extension_operations=True,
            linux_configuration=compute.LinuxConfigurationArgs(
                disable_password_authentication=True,
                provision_vm_agent=True,
                ssh=compute.SshConfigurationArgs(
                    public_keys=[compute.SshPublicKeyArgs(key_data=key, path=home) for key in plan.ssh_public_keys]
                ),
                # A driver or kernel that upgrades itself at night takes the GPU away until the next reboot.
                patch_settings=compute.LinuxPatchSettingsArgs(
                    patch_mode="ImageDefault", assessment_mode="ImageDefault"
                ),
            ),
        )

    def _storage_profile(self) -> compute.StorageProfileArgs:
        args, plan = self._args, self._args.compute
        image = plan.image
        return compute.StorageProfileArgs(
            image_reference=compute.ImageReferenceArgs(
                publisher=image.publisher, offer=image.offer, sku=image.sku, version=image.version
            ),
            os_disk=compute.OSDiskArgs(
                name=args.scope.names.os_disk(args.node.number),
                create_option="FromImage",
                # A leftover with this name would refuse the next VM.
                delete_option="Delete",
                caching=compute.CachingTypes.READ_WRITE,
                disk_size_gb=plan.os_disk_gib,
                managed_disk=compute.ManagedDiskParametersArgs(storage_account_type="Premium_LRS"),
            ),
            data_disks=[] if args.model_disk_id is None else [self._model_disk(args.model_disk_id)],
        )

    def _model_disk(self, disk_id: pulumi.Input[str]) -> compute.DataDiskArgs:
        """Caching is stated: shared disks refuse Azure's default (docs/facts/azure.md#shared-disks)."""
        return compute.DataDiskArgs(
            lun=self._args.model_disk_lun,
            create_option="Attach",
            delete_option="Detach",
            caching=compute.CachingTypes.NONE,
            managed_disk=compute.ManagedDiskParametersArgs(id=disk_id),
        )

    def _apply(self, scripts: Scripts) -> compute.VirtualMachineRunCommandByVirtualMachine:
        """Prepares the bundle as root, once its parts are there; in its turn applies it, and waits until it serves."""
        args = self._args
        parts = [
            self._run_command(name, brings, timeout_s=PART_TIMEOUT_S, after=[self._vm], timeouts=_PART_TIMEOUTS)
            for name, brings in args.part_scripts.items()
        ]
        prepared = self._run_command(
            PREPARE,
            scripts.prepare,
            timeout_s=APPLY_TIMEOUT_S,
            after=[self._vm, *parts, *args.prepare_after],
            timeouts=_APPLY_TIMEOUTS,
        )
        # The script holds no secret, so a rotated one must show elsewhere for the node to fetch it.
        version = args.secrets_version
        return self._run_command(
            APPLY,
            scripts.apply,
            timeout_s=APPLY_TIMEOUT_S,
            tags={"bundle": args.bundle_digest},
            parameters={} if version is None else {Parameter.SECRETS: version},
            after=[self._vm, prepared, *args.turn_after],
            timeouts=_APPLY_TIMEOUTS,
        )

    def _run_command(
        self,
        name: str,
        script: pulumi.Input[str],
        *,
        timeout_s: int,
        after: Sequence[pulumi.Resource],
        timeouts: pulumi.CustomTimeouts,
        tags: Mapping[str, pulumi.Input[str]] = MappingProxyType({}),
        parameters: Mapping[str, pulumi.Input[str]] = MappingProxyType({}),
    ) -> compute.VirtualMachineRunCommandByVirtualMachine:
        """A script that Azure runs as root; the deployment fails where it does.

        It runs again when script or parameters change, and not for a tag (docs/facts/azure.md#run-command). So what
        must make it run is a parameter: the attempt, which is another number after a failure, is one of every command.

        It also runs when the VM behind the same name is another one, for Azure deletes a command with its VM.
        `deleted_with` tells Pulumi so: the command is replaced with its VM and never deleted by a
        call of its own, which Azure refuses while a VM is deallocated. Older engines, which only skip that call,
        see the new VM's own id in a tag instead and update the command, which is a PUT and so creates it. That is why
        the VM's name is plain text here: an output in the path would be a third, worse way, deletion first.
        """
        args, command = self._args, command_name(name)
        last = attempts.last_run(args.scope.names.resource_group, args.node.name, command)
        if last is not None:
            self._known.add(name)
        given = {Parameter.ATTEMPT: str(attempts.number(last)), **parameters}
        return compute.VirtualMachineRunCommandByVirtualMachine(
            f"{self._name}-{name}",
            resource_group_name=args.scope.resource_group_name,
            vm_name=args.node.name,
            run_command_name=command,
            location=args.scope.location,
            source=compute.VirtualMachineRunCommandScriptSourceArgs(script=script),
            parameters=[compute.RunCommandInputParameterArgs(name=key, value=value) for key, value in given.items()],
            async_execution=False,
            treat_failure_as_deployment_failure=True,
            timeout_in_seconds=timeout_s,
            tags={**args.scope.tags, **tags, "vm-id": self._vm.vm_id},
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(after),
                deleted_with=self._vm,
                custom_timeouts=timeouts,
            ),
        )

    def _shutdown(self) -> None:
        """Deallocates the VM every day. Azure finds the schedule by its exact name, beside the VM."""
        args, rule = self._args, self._args.compute.auto_shutdown
        devtestlab.GlobalSchedule(
            f"{self._name}-shutdown",
            resource_group_name=args.scope.resource_group_name,
            name=args.scope.names.shutdown_schedule(args.node.number),
            location=args.scope.location,
            status="Enabled",
            task_type="ComputeVmShutdownTask",
            daily_recurrence=devtestlab.DayDetailsArgs(time=rule.time),
            time_zone_id=rule.timezone,
            target_resource_id=self._vm.id,
            notification_settings=devtestlab.NotificationSettingsArgs(status="Disabled"),
            tags=args.scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )


def _security_profile(security: ImageSecurity) -> compute.SecurityProfileArgs | None:
    """Trusted Launch with a virtual TPM and without Secure Boot, whatever the subscription's default is.

    Secure Boot would keep the image's NVIDIA and OFED modules, which DKMS builds, from loading
    (docs/facts/azure.md#secure-boot).
    An image without the Trusted Launch mark is refused with it (docs/facts/azure.md#trusted-launch); a standard VM is
    one without a profile, since the word `Standard` needs a feature that the subscription has registered.
    """
    if security is ImageSecurity.STANDARD:
        return None
    return compute.SecurityProfileArgs(
        security_type="TrustedLaunch",
        uefi_settings=compute.UefiSettingsArgs(secure_boot_enabled=False, v_tpm_enabled=True),
    )
