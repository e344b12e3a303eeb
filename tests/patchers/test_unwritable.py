"""An overlay that can't be written is wrong usage, as with any other command that writes; a full disk is not."""

import errno
from pathlib import Path

import pytest

from hybridctl.errors import EXIT_FAILURE, EXIT_USAGE, UsageError
from hybridctl.patchers.overlay import _failed, locked


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EACCES, EXIT_USAGE), (errno.EROFS, EXIT_USAGE), (errno.ENOSPC, EXIT_FAILURE)]
)
def test_exit_code_tells_a_wrong_place_from_a_full_disk(number: int, code: int) -> None:
    refusal = _failed(Path("/srv/overlay"), OSError(number, "no", "/srv/overlay/config.json"))
    assert refusal.exit_code == code
    assert str(refusal) == "can't write /srv/overlay/config.json: no"


def test_a_place_that_can_not_be_made_is_one_line_of_wrong_usage() -> None:
    with pytest.raises(UsageError, match="can't write /dev/null/"), locked(Path("/dev/null/overlay")):
        pass
