from pathlib import Path

from hybridctl.doctor.facts.local_wheels import index_facts, wheel_facts

WHEEL = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


def test_wheels_of_torch_in_pips_folders_are_named(tmp_path: Path) -> None:
    for name in (WHEEL, "torchvision-0.28.0-cp311-cp311-linux_x86_64.whl", "torch-notes.txt"):
        (tmp_path / name).touch()
    (fact,) = wheel_facts({"PIP_FIND_LINKS": f"https://example.org/wheels {tmp_path} {tmp_path / 'gone'}"})
    assert (fact.key, fact.value) == ("wheels.torch", [WHEEL])


def test_nothing_is_said_without_a_setting() -> None:
    assert [*wheel_facts({}), *index_facts({})] == []


def test_credentials_of_an_index_are_not_repeated() -> None:
    assert [f.value for f in index_facts({"HYBRIDCTL_TORCH_INDEX": "https://me:word@host/simple"})] == [
        "$HYBRIDCTL_TORCH_INDEX"
    ]
    assert [f.value for f in index_facts({"HYBRIDCTL_TORCH_INDEX": " /opt/wheels "})] == ["/opt/wheels"]
