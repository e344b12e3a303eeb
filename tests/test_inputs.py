import gzip
import os
import threading
import time
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


def test_a_pipe_is_read_and_may_begin_late() -> None:
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            pipe.write(b"\n")
            time.sleep(0.05)
            pipe.write(b"ValueError: x\n" * 10_000)

    thread = threading.Thread(target=write)
    thread.start()
    text = open_binary(f"/dev/fd/{reader}", "--log").read()
    thread.join()
    os.close(reader)
    assert text == b"\n" + b"ValueError: x\n" * 10_000


def test_a_large_utf_16_log_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(("INFO é ok\n" * 200_000 + "the end").encode("utf-16"))
    with open_binary(str(path), "--log") as stream:
        data = stream.read()
    assert data.decode() == "INFO é ok\n" * 200_000 + "the end"


def test_a_compressed_log_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    with gzip.GzipFile(path, "wb") as out:  # with the name of the file in its header, as gzip writes it
        out.write(b"ValueError\n")
    with pytest.raises(UsageError, match="compressed"):
        open_binary(str(path), "--log")


def test_a_very_long_name_is_cut(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_binary("x" * 10_000, "--log")
    assert len(str(caught.value)) < 500
