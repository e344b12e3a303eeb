"""The program that asks the driver, with a driver library that the test compiles."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hybridctl.doctor.facts import local_driver

SOURCE = Path(__file__).parents[2] / "data" / "fake_nvml.c"
CHILD = Path(local_driver.__file__).with_name("_nvml_child.py")
COMPILER = shutil.which("gcc") or shutil.which("clang")

pytestmark = [
    pytest.mark.lifecycle,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="loads a library of Linux"),
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``libnvidia-ml.so.1`` and ``libcuda.so.1``."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("driver")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-w", "-o", str(library), str(SOURCE)], check=True, timeout=60)
    shutil.copy(library, folder / "libcuda.so.1")
    return folder


def environ(folder: Path, mode: str = "0") -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "FAKE_NVML": mode}


def ask(folder: Path, mode: str = "0") -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(CHILD)],
        env=environ(folder, mode),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told: dict[str, object] = {}
    for line in done.stdout.splitlines():
        told.update(json.loads(line))
    return told


def test_everything_that_the_driver_tells(driver: Path) -> None:
    told = ask(driver)
    gib = 1 << 30
    whole = {"name": "NVIDIA H200", "uuid": "GPU-1", "memory": 140 * gib, "free": 137 * gib, "cc": "9.0"}
    part = {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": "MIG-1", "memory": 17 * gib, "free": 14 * gib, "instance": 9}
    assert told["libcuda"] == {"version": 12080, "path": str(driver / "libcuda.so.1")}
    assert told["nvml"] == {
        "driver": "580.95.05", "cuda": 13000, "gpus": [{**whole, "mig": None}, {**whole, "mig": [part]}],
    }  # fmt: skip
    processes = [{"pid": 4711, "used": 5 * gib}, {"pid": 4712, "used": None}]
    assert told["state"] == [
        {"mode": "default", "ecc_errors": 4, "remap_pending": True, "processes": processes},
        {"mode": "prohibited", "ecc_errors": 4, "remap_pending": None, "processes": []},
    ]
    assert told["links"] == [{"pair": [0, 1], "p2p": 1, "nvlink": 0, "level": "CPU to CPU"}]


def test_a_driver_that_refuses(driver: Path) -> None:
    assert ask(driver, "18")["nvml"] == {"error": 18, "text": "Driver/library version mismatch"}
    assert ask(driver, "999")["nvml"] == {"error": 999, "text": "Unknown Error"}


def test_no_driver(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("there is one")
    told = ask(tmp_path)
    assert told["nvml"] == {"error": 12, "text": "NVML Shared Library Not Found"}
    assert "libcuda.so.1" in str(told["libcuda"])


def test_the_command_answers_although_the_driver_hangs(driver: Path) -> None:
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "hybridctl", "doctor", "--json"],
        env=environ(driver, "hang"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert time.monotonic() - begin < 30  # the library would have slept for a minute
    document = json.loads(done.stdout)
    (reason,) = [u["needs"] for u in document["unknown"] if u["check"] == "NVIDIA driver and GPUs"]
    assert reason.startswith(f"an answer of the driver: no answer within {local_driver.SECONDS:g} s")
    assert done.stderr == ""
