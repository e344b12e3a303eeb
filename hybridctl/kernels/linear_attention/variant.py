"""One compiled form of the linear-attention kernels: the sizes that are macros of the source, and what follows from them.

What follows is computed here as in ``common.cuh``, because whoever launches must know it; tests compile both and compare.
"""

from __future__ import annotations

from dataclasses import dataclass

from hybridctl.errors import UsageError

CHUNK, PAD = 64, 8
FEATURE_SIZES = (64, 128, 256)
DTYPES = ("bfloat16", "float16")
FEW_KIB = 99
"""KiB of shared memory that a block of threads may have on every chip from sm_80 on (sm_86, sm_89 and sm_120 have no more)."""
_ROOM = {(8, 0): 163, (8, 7): 163, (9, 0): 227, (10, 0): 227, (10, 3): 227}


@dataclass(frozen=True)
class Variant:
    """Sizes of one build.

    Attributes:
        head_size: D of queries and keys. ``feature_size``: F, equal to D unless projected. ``value_size``: D_v.
        group: query heads that share a key/value head. ``block_size``: tokens a page of the K/V cache.
        dtype: of queries, keys, values and outputs. ``projected``: whether ``linear_proj`` maps keys and queries.
        room_kib: shared memory of a block of threads on the chip. With less, a block takes fewer columns of the state.
    """

    head_size: int = 128
    feature_size: int = 128
    value_size: int = 128
    group: int = 4
    block_size: int = 16
    dtype: str = "bfloat16"
    projected: bool = False
    room_kib: int = 227

    def __post_init__(self) -> None:
        def refuse(field: str, value: object, allowed: str) -> None:
            raise UsageError(f"{field} {value} has no kernel; allowed: {allowed}", "hybridctl kernels build --help")

        if self.dtype not in DTYPES:
            refuse("dtype", self.dtype, " or ".join(DTYPES))
        if self.feature_size not in FEATURE_SIZES:
            refuse("feature size", self.feature_size, ", ".join(map(str, FEATURE_SIZES)))
        if not self.projected and self.feature_size != self.head_size:
            refuse("feature size", self.feature_size, f"{self.head_size}, the head size, where nothing is projected")
        for field in ("head_size", "value_size"):
            size = getattr(self, field)
            if not 32 <= size <= 256 or size % 32:
                refuse(field.replace("_", " "), size, "a multiple of 32 up to 256")
        if not 1 <= self.group <= 16:
            refuse("query heads a group", self.group, "1 to 16")
        if not 1 <= self.block_size <= 65536:
            refuse("block size", self.block_size, "1 to 65536")
        if self.shared_forward > self.room_kib * 1024:
            refuse(
                "this combination of sizes",
                f"({self.shared_forward // 1024} KiB of shared memory a block)",
                f"{self.room_kib} KiB, which is what the chip has",
            )

    @property
    def split(self) -> bool:
        """float16 operands are held as two bfloat16 each: precision of the one, range of float32."""
        return self.dtype == "float16"

    @property
    def value_tile(self) -> int:
        """Columns of the state that a block of threads holds: the most that divide D_v and fit."""
        widest = 64 if self.split or self.feature_size > 128 else 128
        fitting = [t for t in (128, 96, 64, 32) if t <= widest and self.value_size % t == 0]
        for tile in fitting:
            if (self.split or self.feature_size > 128) and tile == 96:
                continue
            if self._shared(tile) <= self.room_kib * 1024:
                return tile
        return 32

    @property
    def threads(self) -> int:
        """Threads of a block in the prefill kernels."""
        return 256 if self.split or self.feature_size > 128 else 512

    @property
    def work_floats(self) -> int:
        """float32 numbers of one segment's state in the workspace, for one key/value head and tile of values."""
        return self.feature_size * self.value_tile + self.feature_size

    def _state(self, tile: int) -> int:
        parts = 2 if self.split else 1
        ks, vs, xs = self.feature_size + PAD, tile + PAD, self.head_size + PAD
        halves = parts * CHUNK * ks + 2 * CHUNK * vs + CHUNK * (xs if self.projected else self.head_size)
        halves += CHUNK * tile if self.split else 0
        halves += self.feature_size * xs if self.projected else 0
        return halves * 2

    def _shared(self, tile: int) -> int:
        parts = 2 if self.split else 1
        return self._state(tile) + (parts * self.feature_size * (tile + PAD) + 2 * self.feature_size) * 2

    @property
    def shared_state(self) -> int:
        """Bytes of shared memory a block of the state kernel takes; ``shared_forward`` of the forward kernel."""
        return self._state(self.value_tile)

    @property
    def shared_forward(self) -> int:
        return self._shared(self.value_tile)

    @property
    def shared_decode(self) -> int:
        """Bytes of shared memory of the decode kernel (256 threads)."""
        lanes = 256 // (self.value_size // 4)
        floats = self.feature_size * (1 + self.group) + self.value_size + (self.group + 1) * self.head_size
        return 4 * (floats + lanes * self.group * self.value_size + self.group)

    @property
    def shared_entropy(self) -> int:
        """Bytes of shared memory of the entropy kernel; ``entropy_threads`` its threads."""
        return 64 * (self.head_size + PAD) * 2 + min(self.group, 4) * 64 * 4

    @property
    def entropy_threads(self) -> int:
        return 128 * min(self.group, 4)

    def macros(self) -> dict[str, int]:
        """What the source is compiled with."""
        return {
            "HEAD_DIM": self.head_size,
            "FEATURE_DIM": self.feature_size,
            "VALUE_DIM": self.value_size,
            "VALUE_TILE": self.value_tile,
            "GROUP": self.group,
            "BLOCK_SIZE": self.block_size,
            "DTYPE": DTYPES.index(self.dtype),
            "PROJECTED": int(self.projected),
        }


def room_kib(arch: str) -> int:
    """Shared memory of a block in KiB on an architecture such as ``sm_90``; of one not known here, what all have.

    Source: CUDA C++ Programming Guide, compute capabilities, table of technical specifications.
    """
    digits = arch.removeprefix("sm_").rstrip("af")
    return _ROOM.get((int(digits[:-1]), int(digits[-1])), FEW_KIB) if digits.isdigit() and len(digits) > 1 else FEW_KIB
