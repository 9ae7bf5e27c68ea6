"""The doctor on machines made of a folder, an environment and a few answers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ferro.runtime import doctor
from ferro.runtime.doctor import NOTE, OK, PROBLEM, Finding, Machine, examine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with nothing on it: no driver, no GPU, no container, PoCL and `ld` present."""
    return Machine(
        root=tmp_path,
        prefix=tmp_path / "prefix",
        environ={},
        groups=frozenset({1000}),
        load_error=lambda library: "",
        which=lambda name: f"/usr/bin/{name}",
        group_of=lambda path: 992,
        usable=lambda path: False,
        installed=lambda name: True,
        import_error=lambda: "",
        devices=lambda: ("cpu (Portable Computing Language)",),
    )


def write(machine: Machine, path: str, text: str = "") -> Path:
    file = machine.path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def about(machine: Machine, subject: str) -> Finding:
    found = [f for f in examine(machine) if f.subject == subject]
    assert len(found) == 1, found
    return found[0]


def test_devices_are_listed(machine: Machine) -> None:
    assert about(machine, "device") == Finding(OK, "device", "cpu (Portable Computing Language)")


def test_no_device_at_all(machine: Machine) -> None:
    finding = about(dataclasses.replace(machine, devices=lambda: ()), "device")
    assert finding.status == PROBLEM
    assert finding.fix.startswith("pip install 'pyopencl[pocl]'")


def test_missing_pyopencl(machine: Machine) -> None:
    finding = about(dataclasses.replace(machine, installed=lambda name: False), "pyopencl")
    assert finding.status == PROBLEM


def test_a_pyopencl_that_does_not_load(machine: Machine) -> None:
    broken = dataclasses.replace(machine, import_error=lambda: "ImportError: no libOpenCL")
    finding = about(broken, "pyopencl")
    assert finding.status == PROBLEM and finding.text.endswith("ImportError: no libOpenCL")
    assert finding.fix.startswith("pip install --force-reinstall")


def test_pocl_without_a_linker_names_the_package(machine: Machine) -> None:
    finding = about(dataclasses.replace(machine, which=lambda name: None), "pocl")
    assert finding.status == PROBLEM
    assert finding.fix == "apt-get install binutils"


def test_broken_driver_library(machine: Machine) -> None:
    file = write(machine, "/etc/OpenCL/vendors/intel.icd", "/usr/lib/libigdrcl.so\n")
    finding = about(
        dataclasses.replace(machine, load_error=lambda library: f"{library}: no such file"),
        str(file),
    )
    assert finding.status == PROBLEM
    assert "no such file" in finding.text
    assert finding.fix == "apt-get install --reinstall intel-opencl-icd"


def test_empty_icd_file(machine: Machine) -> None:
    file = write(machine, "/etc/OpenCL/vendors/odd.icd")
    finding = about(machine, str(file))
    assert (finding.status, finding.fix) == (PROBLEM, f"rm {file}")


def test_no_system_driver(machine: Machine) -> None:
    assert about(machine, "/etc/OpenCL/vendors").status == NOTE


@pytest.mark.parametrize("make_folder", [False, True])
def test_vendors_variable_that_hides_the_system(machine: Machine, make_folder: bool) -> None:
    folder = machine.root / "elsewhere"
    if make_folder:
        folder.mkdir()
    seen = dataclasses.replace(machine, environ={"OCL_ICD_VENDORS": str(folder)})
    finding = about(seen, "OCL_ICD_VENDORS")
    assert (finding.status, finding.fix) == (PROBLEM, "unset OCL_ICD_VENDORS")


def test_vendors_variable_is_followed(machine: Machine) -> None:
    file = write(machine, "/elsewhere/one.icd", "libone.so")
    seen = dataclasses.replace(machine, environ={"OCL_ICD_VENDORS": str(file.parent)})
    assert about(seen, "OCL_ICD_VENDORS").status == OK
    assert about(seen, str(file)).text == "libone.so loads"


def test_filenames_variable_is_not_read(machine: Machine) -> None:
    seen = dataclasses.replace(machine, environ={"OCL_ICD_FILENAMES": "a.so"})
    assert about(seen, "OCL_ICD_FILENAMES").status == NOTE


@pytest.mark.parametrize(
    ("value", "gpu", "status", "fix"),
    [
        ("", "", NOTE, "export RUSTICL_ENABLE=llvmpipe"),
        ("", "0x8086\n", NOTE, "export RUSTICL_ENABLE=iris"),
        ("", "0x1002\n", NOTE, "export RUSTICL_ENABLE=radeonsi"),
        ("intel", "0x8086\n", PROBLEM, "export RUSTICL_ENABLE=iris"),
        ("iris", "0x8086\n", OK, ""),
        ("iris:0,llvmpipe", "", OK, ""),
    ],
)
def test_rusticl_naming(machine: Machine, value: str, gpu: str, status: str, fix: str) -> None:
    write(machine, "/etc/OpenCL/vendors/rusticl.icd", "libRusticlOpenCL.so.1")
    if gpu:
        write(machine, "/sys/class/drm/card0/device/vendor", gpu)
    seen = dataclasses.replace(machine, environ={"RUSTICL_ENABLE": value})
    finding = about(seen, "rusticl")
    assert (finding.status, finding.fix) == (status, fix)


def test_intel_runtime_with_its_wrong_entry(machine: Machine) -> None:
    write(machine, "/prefix/lib/libintelocl.so")
    write(machine, "/prefix/etc/OpenCL/vendors/intel-cpu.icd", "/built/elsewhere/libintelocl.so")
    finding = about(machine, "intel-opencl-rt")
    assert finding.status == OK
    assert "wrong path" in finding.text


def test_intel_runtime_that_lacks_a_library(machine: Machine) -> None:
    write(machine, "/prefix/lib/libintelocl.so")
    seen = dataclasses.replace(machine, load_error=lambda library: "libsvml.so: cannot open")
    finding = about(seen, "intel-opencl-rt")
    assert finding.status == PROBLEM
    assert "intel-cmplr-lib-rt" in finding.fix


def test_render_node_of_another_group_on_a_host(machine: Machine) -> None:
    write(machine, "/dev/dri/renderD128")
    write(machine, "/etc/group", "root:x:0:\nrender:x:992:\n")
    finding = about(machine, "/dev/dri/renderD128")
    assert "group 992" in finding.text
    assert finding.fix == "sudo usermod -aG render $USER  # then log in anew"


@pytest.mark.parametrize(
    ("mark", "environ", "fix"),
    [
        ("/.dockerenv", {}, "docker run --device /dev/dri --group-add 992 ..."),
        ("/run/.containerenv", {}, "docker run --device /dev/dri --group-add 992 ..."),
        (
            "/none",
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
            "securityContext: {supplementalGroups: [992]}",
        ),
    ],
)
def test_render_node_in_a_container(
    machine: Machine, mark: str, environ: dict[str, str], fix: str
) -> None:
    write(machine, "/dev/dri/renderD128")
    write(machine, mark)
    seen = dataclasses.replace(machine, environ=environ)
    assert about(seen, "/dev/dri/renderD128").fix == fix


def test_container_is_read_off_the_control_group(machine: Machine) -> None:
    write(machine, "/proc/1/cgroup", "0::/system.slice/docker-0123.scope\n")
    assert machine.container == "Docker"
    assert "Docker container" in about(machine, "/dev/dri").text


def test_render_node_that_may_be_opened(machine: Machine) -> None:
    write(machine, "/dev/dri/renderD128")
    seen = dataclasses.replace(machine, usable=lambda path: True)
    assert about(seen, "/dev/dri/renderD128").status == OK


def test_gpu_without_a_render_node(machine: Machine) -> None:
    write(machine, "/sys/class/drm/card0/device/vendor", "0x8086\n")
    finding = about(machine, "/dev/dri")
    assert (finding.status, finding.fix) == (PROBLEM, "modprobe i915")


def test_library_that_does_not_load_is_named_without_a_traceback() -> None:
    error = doctor.load_error("libno-such-library-anywhere.so")
    assert "libno-such-library-anywhere.so" in error
    assert "Traceback" not in error


def test_library_that_loads() -> None:
    assert doctor.load_error("libc.so.6") == ""
