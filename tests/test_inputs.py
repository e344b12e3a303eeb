from pathlib import Path

import pytest

from hybridctl.errors import UsageError
from hybridctl.inputs import open_binary, read_text


def test_powershell_writes_utf_16_and_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes("ValueError: schön\r\n".encode("utf-16"))
    assert open_binary(str(path), "--log").read().decode() == "ValueError: schön\r\n"


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "env.txt"
    path.write_bytes(b"\xef\xbb\xbfvllm==0.33.0\n")
    assert read_text(str(path), "--env") == "vllm==0.33.0\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\x7fELF\x02\x01\x01" + bytes(200), "not text"),
        (b"PK\x03\x04abc", "not text"),
        (bytes(range(32)) * 9, "not text"),
    ],
)
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        open_binary(str(path), "--log")


def test_missing_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        read_text(str(tmp_path / "none"), "--env")
    with pytest.raises(UsageError, match="folder"):
        read_text(str(tmp_path), "--env")


def test_a_path_with_a_nul_is_no_crash() -> None:
    with pytest.raises(UsageError):
        read_text("a\0b", "--env")
