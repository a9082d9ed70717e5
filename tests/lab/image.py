# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The guest's system disk: Debian 12 with systemd, one of two kernels and the tools of a storage node.

An image is a directory of the cache: disk.raw, the kernel (vmlinux or vmlinuz), initrd, version, and key for ssh.
"""

import lzma
import os
import shutil
import subprocess
from pathlib import Path

import cache
import host
from steps import LabError, sh, step

HERE = Path(__file__).resolve().parent
KERNELS = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}
DISK_BYTES = 32 << 30  # sparse: what the guest can fill, not what it takes
PACKAGES = """
    systemd systemd-sysv udev dbus kmod procps psmisc iproute2 openssh-server busybox-static
    lvm2 thin-provisioning-tools dmsetup open-iscsi nfs-kernel-server nfs-common e2fsprogs xfsprogs
    python3 python3-venv qemu-utils qemu-block-extra libiscsi-bin fio sg3-utils
    make git zstd sqlite3 strace less
""".split()
WITHOUT = ["/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/i18n/*"]


def system(kernel: str) -> Path:
    """The cached image with this kernel."""
    sources = [*sorted(HERE.glob("guest.d/**/*")), HERE / "customize", HERE / "init", HERE / "image.py"]
    inputs = [each.read_text() for each in sources if each.is_file()]
    return cache.entry(f"system-{kernel}", [KERNELS[kernel], *inputs], lambda out: _build(kernel, out))


def _build(kernel: str, out: Path) -> None:
    host.need_root("building the guest's image")
    root = out / "root"
    with step(f"install Debian 12 with kernel {kernel} for the guest (once)"):
        _bootstrap(KERNELS[kernel], root, out)
    with step("make the guest's disk (once)"):
        _uncompress(out)
        filesystem(root, out / "disk.raw", DISK_BYTES)
        shutil.rmtree(root)


def _bootstrap(meta: str, root: Path, out: Path) -> None:
    options = ["--quiet", "--mode=root", "--variant=minbase", "--format=directory", "--include=" + ",".join(PACKAGES),
               "--aptopt=APT::Install-Recommends false", "--dpkgopt=force-unsafe-io",
               *(f"--dpkgopt=path-exclude={each}" for each in WITHOUT),
               *(f"--aptopt={each}" for each in host.apt_options()),
               f"--customize-hook=sh {HERE / 'customize'} \"$1\""]
    environment = {**os.environ, "KERNEL": meta, "OUT": str(out), "LAB": str(HERE), "LC_ALL": "C.UTF-8"}
    sh(["mmdebstrap", *options, "bookworm", str(root), *host.debian_sources()], env=environment)


def filesystem(tree: Path, disk: Path, size: int) -> None:
    """An ext4 disk holding `tree`; its unused parts take no room and are not zeroed in the guest."""
    with open(disk, "wb") as new:
        new.truncate(size)
    sh(["mke2fs", "-q", "-t", "ext4", "-E", "assume_storage_prezeroed=1", "-O", "^metadata_csum_seed,^orphan_file",
        "-m", "0", "-d", str(tree), str(disk)])


def _uncompress(out: Path) -> None:
    """Take the ELF kernel out of vmlinuz: QEMU starts it directly (PVH), 5 s sooner than it unpacks itself under TCG."""
    packed = (out / "vmlinuz").read_bytes()
    for magic, unpack in ((b"\xfd7zXZ\x00", _unxz), (b"\x28\xb5\x2f\xfd", _unzstd)):
        start = packed.find(magic)
        kernel = unpack(packed[start:]) if start >= 0 else b""
        if kernel.startswith(b"\x7fELF"):
            (out / "vmlinux").write_bytes(kernel)
            return
    raise LabError("the kernel package holds no kernel this lab can unpack (neither xz nor zstd)")


def _unxz(packed: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(packed)


def _unzstd(packed: bytes) -> bytes:
    return subprocess.run(["zstd", "-dcq"], input=packed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
