# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The guest's system disk: Debian 12, systemd, one of two kernels, a node's tools.

An image is an entry of the cache: disk.raw, vmlinux, initrd, version, key (for ssh).
"""

import lzma
import os
import shutil
import subprocess
from pathlib import Path

from tests.lab import cache, host
from tests.lab.steps import LabError, sh, step

HERE = Path(__file__).resolve().parent
KERNELS = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}
DISK_BYTES = 32 << 30  # sparse: what a guest may fill, not what the image takes
WITHOUT = [f"/usr/share/{each}/*" for each in ("doc", "info", "locale", "man", "i18n")]


def system(kernel: str) -> Path:
    """The image with this kernel, from the cache or new."""
    ours = ("customize", "init", "image.py", "packages", "guest.d/**/*")
    files = sorted(path for each in ours for path in HERE.glob(each) if path.is_file())
    inputs = [f"{path.name}\n{path.read_text()}" for path in files]
    return cache.entry(f"system-{kernel}", inputs, lambda out: _build(kernel, out))


def _build(kernel: str, out: Path) -> None:
    host.need_root("building the guest's image")
    root = out / "root"
    with step(f"install Debian 12 with kernel {kernel} for the guest (once)"):
        _bootstrap(KERNELS[kernel], root, out)
    with step("make the guest's disk (once)"):
        _uncompress(out)
        filesystem(root, out / "disk.raw", DISK_BYTES, "system")
        shutil.rmtree(root)


def _bootstrap(kernel: str, root: Path, out: Path) -> None:
    options = [
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        f"--include={','.join(_packages())}",
        "--aptopt=APT::Install-Recommends false",
        "--dpkgopt=force-unsafe-io",  # without it 120 s instead of 50
        *(f"--dpkgopt=path-exclude={each}" for each in WITHOUT),
        *(f"--aptopt={each}" for each in host.apt_options()),
        f'--customize-hook=sh "{HERE}/customize" "$1"',
    ]
    env = {"KERNEL": kernel, "OUT": str(out), "LAB": str(HERE), "LC_ALL": "C.UTF-8"}
    argv = ["mmdebstrap", *options, "bookworm", root, *host.debian_sources()]
    sh(argv, env={**os.environ, **env})


def _packages() -> list[str]:
    lines = (HERE / "packages").read_text().splitlines()
    return [name for line in lines if not line.startswith("#") for name in line.split()]


def filesystem(tree: Path, disk: Path, size: int, label: str) -> None:
    """An ext4 disk that holds `tree`; the rest of it uses no space on the host."""
    with open(disk, "wb") as new:
        new.truncate(size)
    zeroed = "assume_storage_prezeroed=1"  # nothing left for the guest to initialise
    mke2fs = ["mke2fs", "-q", "-t", "ext4", "-m", "0", "-E", zeroed]
    sh([*mke2fs, "-L", label, "-d", tree, disk])


def _uncompress(out: Path) -> None:
    """The ELF kernel out of vmlinuz: QEMU starts it as it is (PVH).

    Under TCG that saves the 5 s which vmlinuz takes to unpack itself.
    """
    packed = (out / "vmlinuz").read_bytes()
    for magic, unpack in ((b"\xfd7zXZ\0", _unxz), (b"\x28\xb5\x2f\xfd", _unzstd)):
        start = packed.find(magic)
        kernel = unpack(packed[start:]) if start >= 0 else b""
        if kernel.startswith(b"\x7fELF"):
            (out / "vmlinux").write_bytes(kernel)
            (out / "vmlinuz").unlink()
            return
    raise LabError("this kernel is packed neither with xz nor with zstd")


def _unxz(packed: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(packed)


def _unzstd(packed: bytes) -> bytes:
    silent = subprocess.DEVNULL  # what follows the kernel is no zstd, as it says
    unpack = ["zstd", "-dcq"]
    done = subprocess.run(
        unpack, input=packed, stdout=subprocess.PIPE, stderr=silent, check=False
    )
    return done.stdout
