# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The driver's class beside Cinder's interface classes and Cinder's LVM driver."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lunshare.cinder.backend_section import OPTIONS
from lunshare.cinder.foreign_options import FOREIGN
from lunshare.drivers.lvm import LvmVolumes
from lunshare.drivers.nfs import NfsVolumes
from lunshare.drivers.targets.lio import LioTarget
from lunshare.drivers.targets.nfs import NfsTarget
from tests.fleet.stack import python_path
from tests.stands.cinder_programs import python

#: What Cinder's base class does for every driver.
COMMON = {
    "after_volume_copy",
    "before_volume_copy",
    "clone_image",
    "do_setup",
    "get_volume_stats",
    "init_capabilities",
    "initialized",
    "set_initialized",
    "set_throttle",
    "supported",
}
#: What it refuses with NotImplementedError: Cinder then loops over the volumes of a
#: group, and keeps a migrated volume's other id.
REFUSED = {
    "create_cgsnapshot",
    "create_consistencygroup",
    "create_consistencygroup_from_src",
    "create_group",
    "create_group_from_src",
    "create_group_snapshot",
    "delete_cgsnapshot",
    "delete_consistencygroup",
    "delete_group",
    "delete_group_snapshot",
    "update_consistencygroup",
    "update_group",
    "update_migrated_volume",
}
#: Options beside Cinder's drivers that Cinder itself reads, or all drivers have.
OF_CINDER = {
    "backend_availability_zone",
    "backup_use_temp_snapshot",
    "disk_geometry",
    "driver_data_namespace",
    "enable_unsupported_driver",
    "enforce_multipath_for_image_xfer",
    "filter_function",
    "goodness_function",
    "image_upload_use_cinder_backend",
    "image_upload_use_internal_tenant",
    "image_volume_cache_enabled",
    "image_volume_cache_max_count",
    "image_volume_cache_max_size_gb",
    "max_over_subscription_ratio",
    "num_shell_tries",
    "num_volume_device_scan_tries",
    "report_discard_supported",
    "reserved_percentage",
    "trace_flags",
    "unique_fqdn_network",
    "use_multipath_for_image_xfer",
    "volume_backend_name",
    "volume_copy_blkio_cgroup_name",
    "volume_copy_bps_limit",
    "volume_dd_blocksize",
}


@pytest.fixture(params=["ours theirs", "theirs ours"])
def found(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    config = tmp_path / "cinder.conf"
    config.write_text(
        "[DEFAULT]\nmy_ip = 127.0.0.3\nenabled_backends = ours,theirs\n"
        f"state_path = {tmp_path}\n"
        f"[database]\nconnection = sqlite:///{tmp_path}/cinder.sqlite\n"
        f"[oslo_concurrency]\nlock_path = {tmp_path}/lock\n"
        "[ours]\nvolume_driver = lunshare.cinder.LunshareDriver\n"
        "volume_group = ours\n"
        "[theirs]\nvolume_driver = cinder.volume.drivers.lvm.LVMVolumeDriver\n"
        "volume_group = theirs\ntarget_helper = fake\n"
    )
    words = [str(python()), "-W", "ignore", "-m", "tests.fleet.interface_checks"]
    done = subprocess.run(
        [*words, str(config), *request.param.split()],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": python_path(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def printed(module: str, tmp_path: Path) -> Any:
    """What a module prints that Cinder's Python runs."""
    done = subprocess.run(
        [str(python()), "-W", "ignore", "-m", f"tests.fleet.{module}"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": python_path(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_killed_clone_of_cinder_itself_leaves_no_snapshot(tmp_path: Path) -> None:
    """It locked its source: of a thick volume, which then could not be deleted."""
    assert printed("killed_clone", tmp_path) == []


def test_migration_leaves_the_source_where_a_copy_would_be_wrong(
    tmp_path: Path,
) -> None:
    """On bytes of another disk, whose new disk is deleted, or on other sectors."""
    assert printed("refused_migrations", tmp_path) == [
        {"error": "foreign-bytes", "disks": [1, 0]},
        {"error": "unsupported", "disks": [1, 0]},
    ]


def test_driver_has_the_whole_interface_beside_cinders_own_driver(found: Any) -> None:
    assert found["registered"]
    assert found["listed"]
    assert found["compliant"] == found["interfaces"]
    assert found["wrong"] == []
    assert set(found["inherited"]) == COMMON | REFUSED
    assert set(found["refused"]) == REFUSED
    # Both have an option of this name, with other choices and another default.
    assert found["lvm_type"] == {"ours": "thin", "theirs": "auto"}
    assert found["chap"] is True
    assert found["address"] == "127.0.0.3"


def test_each_option_of_cinders_drivers_is_read_or_refused_with_what_to_do(
    found: Any,
) -> None:
    drivers = (LvmVolumes, NfsVolumes, LioTarget, NfsTarget)
    lists = (OPTIONS, *(driver.OPTIONS for driver in drivers))
    read = {option.dest for each in lists for option in each}
    assert set(found["options"]) - read - set(FOREIGN) <= OF_CINDER
    assert not read & set(FOREIGN)


def test_user_without_permission_on_the_socket_is_named(tmp_path: Path) -> None:
    socket_path, config = tmp_path / "helper.sock", tmp_path / "cinder.conf"
    config.write_text(
        f"[DEFAULT]\nmy_ip = 127.0.0.3\nstate_path = {tmp_path}\n"
        f"[database]\nconnection = sqlite:///{tmp_path}/cinder.sqlite\n"
        f"[oslo_concurrency]\nlock_path = {tmp_path}/lock\n"
        "[ours]\nvolume_driver = lunshare.cinder.LunshareDriver\n"
        f"volume_group = ours\nlunshare_helper_socket = {socket_path}\n"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        listener.listen()
        socket_path.chmod(0)
        done = subprocess.run(
            [
                str(python()),
                "-W",
                "ignore",
                "-m",
                "tests.fleet.forbidden_helper",
                config,
            ],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": python_path(tmp_path)},
        )
    assert done.returncode == 0, done.stderr
    said = f"may not use the root helper at {socket_path}: name it in --user"
    lines = [line for line in done.stdout.splitlines() if said in line]
    assert [line.partition(":")[0] for line in lines] == ["log", "error"]
    assert lines[0].startswith("log: [ours] backend state: up=False problem=user ")


def test_an_access_that_nothing_can_follow_is_closed_again(tmp_path: Path) -> None:
    """It stayed open for ever: Cinder has no row that names its host."""
    answers = printed("unfollowed", tmp_path)["unfollowed"]
    assert len(answers) == 4
    for name, answer in answers.items():
        reason = "no portal" if "no_answer" in name else "can't start new thread"
        assert reason in answer.pop("error")
        assert answer == {"open": [], "direct": [], "opening": 0}


def test_a_detach_does_not_read_the_type_of_the_volume(tmp_path: Path) -> None:
    """It failed while the row of the type could not be read."""
    one = {"before": ["iqn.1994-05.com.example:one"], "after": []}
    answers = printed("unfollowed", tmp_path)["without type"]
    assert answers == {"the host": one, "any host": one}


def test_a_start_that_fails_in_part_is_repeated_with_the_rows_of_that_time(
    tmp_path: Path,
) -> None:
    """The first raised VolumeNotFound from every later read of the stats.

    The second removed the export that the volume's new backend had created, and the
    third ended cinder-volume at its start. The fourth was tried again and again.
    """
    assert printed("failed_starts", tmp_path) == {
        "deleted": {"stats": "up", "live": ["1"]},
        "migrated": {"stats": "up", "live": ["1"]},
        "unlisted": {"stats": "up", "live": []},
        "lost": {"stats": "up", "live": ["4"], "then": []},
    }
