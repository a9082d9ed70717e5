# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare consumer-config``: what a host or a hypervisor needs to use a volume.

Each form is for one file or shell of the consumer, and has its secret where the
consumer wants it.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from lunshare.agent.cli.client import NodeClient, Refused
from lunshare.agent.cli.commands import Result, hosts_of
from lunshare.agent.cli.output import visible

#: A row of the API: an attachment, or the connector of a host.
Fields = dict[str, Any]

#: The kernel's NAA identifier (target_core_spc.c, spc_gen_naa_6h_vendor_specific): type
#: 6, the company LIO-ORG, and the first 25 hexadecimal digits of the serial number.
_NAA = "6001405"
_NAA_DIGITS = 25


def describe(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument(
        "attachment",
        metavar="ATTACHMENT",
        help="its id, as share, attach and why print it",
    )
    parser.add_argument(
        "--format", choices=_FORMS, default="iscsiadm", help="default: iscsiadm"
    )


def consumer_config(node: NodeClient, arguments: argparse.Namespace) -> Result:
    """Print what a host needs to use an attachment: commands, or lines of a file.

    The text has the host's secret.
    """
    row = node.get(f"/attachments/{quote(arguments.attachment, safe='')}")["attachment"]
    host = _host(node, row)
    text = _FORMS[arguments.format](row, host).rstrip()
    return Result({"format": arguments.format, "text": text}, text)


def iscsiadm(row: Fields, host: Fields) -> str:
    """Return the commands of open-iscsi that log in to every portal."""
    info = iscsi_connection(row)
    lines = [
        f"# As root on {visible(host['host'])}, {row['attach_mode']}. Its name in"
        " /etc/iscsi/initiatorname.iscsi is",
        f"# InitiatorName={host['initiator']}",
    ]
    settings = {}
    if "auth_username" in info:
        settings["node.session.auth.authmethod"] = info["auth_method"]
        settings["node.session.auth.username"] = info["auth_username"]
        settings["node.session.auth.password"] = info["auth_password"]
    for portal in portals(info):
        record = f"iscsiadm -m node -T {info['target_iqn']} -p {portal}"
        lines += [f"{record} -o new"]
        lines += [
            f"{record} -o update -n {name} -v {shlex.quote(value)}"
            for name, value in settings.items()
        ]
        lines += [f"{record} --login"]
    return "\n".join(lines) + "\n"


def libvirt(row: Fields, host: Fields) -> str:
    """Return a disk of libvirt's domain format, which QEMU itself logs in to."""
    info = iscsi_connection(row)
    portal = portals(info)[0]
    address, port = split(portal)
    lines = [
        "<disk type='network' device='disk'>",
        "  <driver name='qemu' type='raw' cache='none'/>",
        f"  <source protocol='iscsi' name={_quoted(info['target_iqn'], _lun(info))}>",
        f"    <host name={quoteattr(address)} port='{port}'/>",
        f"    <initiator><iqn name={quoteattr(host['initiator'])}/></initiator>",
        *_libvirt_secret(info),
        "  </source>",
        "  <target dev='sdb' bus='scsi'/>",
        *(["  <readonly/>"] if row["attach_mode"] == "ro" else []),
        "  <shareable/>",
        f"  <serial>{escape(row['volume_id'])}</serial>",
        "</disk>",
    ]
    return "\n".join(lines)


def _libvirt_secret(info: Fields) -> list[str]:
    """Return who logs in. libvirt has secrets in objects of their own."""
    if "auth_username" not in info:
        return []
    usage = quoteattr(info["target_iqn"])
    return [
        f"    <auth username={quoteattr(info['auth_username'])}>",
        f"      <secret type='iscsi' usage={usage}/>",
        f"      <!-- the value of that secret: {escape(info['auth_password'])} -->",
        "    </auth>",
    ]


def multipath(row: Fields, host: Fields) -> str:
    """Return a section of multipath.conf that names the disk after its volume."""
    return "\n".join(
        (
            "# The section defaults needs: find_multipaths yes",
            "multipaths {",
            "    multipath {",
            f"        wwid 3{_naa(row)}",
            f"        alias volume-{row['volume_id']}",
            "    }",
            "}",
        )
    )


def fstab(row: Fields, host: Fields) -> str:
    """Return lines of fstab; keep that of the file system which the disk has."""
    device = f"/dev/disk/by-id/wwn-0x{_naa(row)}"
    where = f"/mnt/{row['volume_id']}"
    if row["attach_mode"] != "ro":
        return (
            "# For one writer. Several need a cluster file system (ocfs2, gfs2).\n"
            f"{device} {where} auto defaults,_netdev,nofail 0 0"
        )
    # The journal of a file system is replayed by a write, also for a mount with ro:
    # the disk refuses it, and the mount fails (ext4(5), xfs(5)).
    return (
        "# Keep one line. The disk is read-only, so the journal is not replayed.\n"
        f"{device} {where} ext4 ro,noload,_netdev,nofail 0 0\n"
        f"{device} {where} xfs ro,norecovery,_netdev,nofail 0 0"
    )


def ipxe(row: Fields, host: Fields) -> str:
    """Return a script of iPXE that boots from the disk."""
    info = iscsi_connection(row)
    address, port = split(portals(info)[0])
    bracketed = f"[{address}]" if ":" in address else address
    lines = ["#!ipxe", f"set initiator-iqn {host['initiator']}"]
    if "auth_username" in info:
        lines += [f"set username {info['auth_username']}"]
        lines += [f"set password {info['auth_password']}"]
    disk = f"iscsi:{bracketed}::{port}:{_lun(info):x}:{info['target_iqn']}"
    return "\n".join([*lines, f"sanboot {disk}"])


_FORMS: dict[str, Callable[[Fields, Fields], str]] = {
    form.__name__: form for form in (iscsiadm, libvirt, multipath, fstab, ipxe)
}


def _host(node: NodeClient, row: Fields) -> Fields:
    """Return the host of an attachment, with its initiator.

    :raises Refused: it has none yet.
    """
    for host in hosts_of(node, row["volume_id"]):
        if host["attachment_id"] == row["id"]:
            return host
    raise Refused(
        f"attachment {row['id']} is {row['status']} and has no host: connect it first"
    )


def iscsi_connection(row: Fields) -> Fields:
    """Return what a host logs in with.

    :raises Refused: hosts do not reach the volume over iSCSI."""
    info: Fields = row["connection_info"]
    protocol = info.get("driver_volume_type")
    if protocol != "iscsi":
        raise Refused(
            f"volume {row['volume_id']} is exported by {protocol}, not by iSCSI: use"
            " its connection_info by hand"
        )
    return info


def portals(info: Fields) -> list[str]:
    """Return every portal, as ADDRESS:PORT."""
    several: list[str] | None = info.get("target_portals")
    return several or [info["target_portal"]]


def split(portal: str) -> tuple[str, str]:
    """Return address and port; an IPv6 address has no brackets."""
    address, _, port = portal.rpartition(":")
    return address.strip("[]"), port


def _lun(info: Fields) -> int:
    return int(info["target_lun"])


def _quoted(iqn: str, lun: int) -> str:
    return quoteattr(f"{iqn}/{lun}")


def _naa(row: Fields) -> str:
    digits = str(row["volume_id"]).replace("-", "")
    return _NAA + digits[:_NAA_DIGITS]
