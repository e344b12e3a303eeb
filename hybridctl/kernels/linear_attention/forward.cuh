// The answers of a prefill: each segment from the state before it, chunk by chunk.
#pragma once
#include "common.cuh"

constexpr int ROWS = 16 * MT;             // query rows of a warp's tile: neighbouring tokens of one head
constexpr int TILES_A_HEAD = CHUNK / ROWS, TILES = G * TILES_A_HEAD;

// Tiles of a head differ in work: the warps of a scheduler (four apart) take different ones.
__device__ __forceinline__ int first_of(int work) { return (work + work / 4) % TILES_A_HEAD * ROWS; }
__device__ __forceinline__ int head_of(int h, int work) { return h * G + work / TILES_A_HEAD; }

struct Queries {
    u32 raw[MT][D / 16][4];
};
// Tokens at … at + ROWS - 1 of one head, as fragments of the inputs' type.
__device__ __forceinline__ void load_queries(const Batch &b, const Segment &s, int at, int head, Queries &q) {
    int lane = threadIdx.x & 31, t = lane & 3;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int token = at + i * 16 + half * 8 + (lane >> 2);
            const u16 *p = b.q + (u64)token * b.q_stride + (u64)head * D;
            if (PROJECTED) {  // in the natural order, as the projection is
#pragma unroll
                for (int ks = 0; ks < D / 16; ks++)
#pragma unroll
                    for (int j = 0; j < 2; j++)
                        q.raw[i][ks][half + j * 2] = token < s.end ? *reinterpret_cast<const u32 *>(p + ks * 16 + j * 8 + t * 2) : 0u;
                continue;
            }
#pragma unroll
            for (int g = 0; g < D / 32; g++) {
                uint4 x = token < s.end ? load16(p + t * 8 + g * 32) : make_uint4(0, 0, 0, 0);
                q.raw[i][g * 2][half] = x.x;
                q.raw[i][g * 2][half + 2] = x.y;
                q.raw[i][g * 2 + 1][half] = x.z;
                q.raw[i][g * 2 + 1][half + 2] = x.w;
            }
        }
}
// Brings the queries of a chunk near.
__device__ __forceinline__ void prefetch_queries(const Batch &b, const Segment &s, int at, int h) {
    for (int line = threadIdx.x; line < CHUNK * G * D / 64; line += THREADS) {
        int token = at + line / (G * D / 64);
        if (token < s.end) asm volatile("prefetch.global.L2 [%0];" ::"l"(b.q + (u64)token * b.q_stride + (u64)h * G * D + line % (G * D / 64) * 64));
    }
}
struct Features {
    u32 x[PARTS][MT][F / 16][4];
};
__device__ __forceinline__ void map_queries(const Shared &m, const Queries &q, Features &f) {
    int lane = threadIdx.x & 31;
    if (PROJECTED) {
#pragma unroll
        for (int ks = 0; ks < F / 16; ks++) {
            float c[MT][2][4] = {};
#pragma unroll
            for (int k0 = 0; k0 < D / 16; k0++) {
                u32 w[4];
                ldmatrix(w, shared_address(m.w + (ks * 16 + (lane & 7) + (lane >> 4) * 8) * XS + k0 * 16 + ((lane >> 3) & 1) * 8));
#pragma unroll
                for (int i = 0; i < MT; i++) {
                    mma_input(c[i][0], q.raw[i][k0], w[0], w[1]);
                    mma_input(c[i][1], q.raw[i][k0], w[2], w[3]);
                }
            }
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    u32 o[PARTS];
                    operand(phi(c[i][e >> 1][(e & 1) * 2]), phi(c[i][e >> 1][(e & 1) * 2 + 1]), o);
#pragma unroll
                    for (int p = 0; p < PARTS; p++) f.x[p][i][ks][e] = o[p];
                }
        }
    } else {
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int ks = 0; ks < F / 16; ks++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    u32 o[PARTS];
                    map_pair(q.raw[i][ks][e], o);
#pragma unroll
                    for (int p = 0; p < PARTS; p++) f.x[p][i][ks][e] = o[p];
                }
    }
}

// The state into shared memory as operand, and z as two columns: rounded, and what that left over.
__device__ __forceinline__ void put_state(const Shared &m, const State &st) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, m0 = (warp % WM) * MR, n0 = (warp / WM) * NR, r = lane >> 2, t = lane & 3;
#pragma unroll
    for (int i = 0; i < SM_; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int f = m0 + i * 16 + half * 8 + r;
#pragma unroll
            for (int j = 0; j < SN; j++) {
                u32 o[PARTS];
                operand(st.s[i][j][half * 2], st.s[i][j][half * 2 + 1], o);
#pragma unroll
                for (int p = 0; p < PARTS; p++) *reinterpret_cast<u32 *>(m.s[p] + f * VS + n0 + j * 8 + t * 2) = o[p];
            }
            if (warp < WM && t == 0) {
                float z = st.z[i][half * 2];
                u32 hi = pack_bf16(z, 0.0f);
                m.z[f] = u16(hi);
                m.z[F + f] = u16(pack_bf16(z - unpack_bf16(hi).x, 0.0f));
            }
        }
}


// One warp's tile: tokens at + first … of head `head`, at most `valid` tokens of the chunk exist.
__device__ __forceinline__ void answer(const Batch &b, const Segment &s, const Shared &m, const Features &q, int at, int first, int h, int head, int tile, int turn) {
    int lane = threadIdx.x & 31, r = lane >> 2, t = lane & 3;
    constexpr int KB = CHUNK / 16;
    u32 k_at = shared_address(m.k[0] + ((lane & 7) + (lane >> 4) * 8) * KS + ((lane >> 3) & 1) * 8);
    u32 v_at = shared_address(m.v + (SPLIT ? 0 : turn) * CHUNK * VS + (lane & 15) * VS + (lane >> 4) * 8);
    u32 s_at = shared_address(m.s[0] + (lane & 15) * VS + (lane >> 4) * 8);
    asm volatile("" : "+r"(k_at), "+r"(v_at), "+r"(s_at));  // kept, not computed again in every step
    u32 p[PARTS][MT][KB][4];
    float den[MT][4] = {};
    u32 one = lane < 4 ? 0x3f803f80u : 0u;
#pragma unroll
    for (int kb = 0; kb < KB; kb++) {
        if (kb * 16 >= first + ROWS) break;
        float c[MT][2][4] = {};
#pragma unroll
        for (int ks = 0; ks < F / 16; ks++) {
            u32 k[PARTS][4];
#pragma unroll
            for (int pt = 0; pt < PARTS; pt++)
                ldmatrix(k[pt], k_at + (pt * CHUNK * KS + kb * 16 * KS + ks * 16) * 2);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    mma_bf16(c[i][j], q.x[0][i][ks], k[0][j * 2], k[0][j * 2 + 1]);
                    if (SPLIT) {
                        mma_bf16(c[i][j], q.x[PARTS - 1][i][ks], k[0][j * 2], k[0][j * 2 + 1]);
                        mma_bf16(c[i][j], q.x[0][i][ks], k[PARTS - 1][j * 2], k[PARTS - 1][j * 2 + 1]);
                    }
                }
        }
#pragma unroll
        for (int i = 0; i < MT; i++) {
            if (kb * 16 + 15 > first + i * 16) {
#pragma unroll
                for (int j = 0; j < 2; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (kb * 16 + j * 8 + t * 2 + (e & 1) > first + i * 16 + r + (e >> 1) * 8) c[i][j][e] = 0.0f;
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 o[PARTS];
                operand(c[i][e >> 1][(e & 1) * 2], c[i][e >> 1][(e & 1) * 2 + 1], o);
#pragma unroll
                for (int pt = 0; pt < PARTS; pt++) p[pt][i][kb][e] = o[pt];
            }
#pragma unroll
            for (int pt = 0; pt < PARTS; pt++) mma_bf16(den[i], p[pt][i][kb], one, one);
        }
    }
    // phi(q)·z, columns 0 and 1.
#pragma unroll
    for (int ks = 0; ks < F / 16; ks++) {
        u32 z0 = 0, z1 = 0;
        if (lane < 8) {
            const u16 *z = m.z + (lane >> 2) * F + ks * 16 + t * 2;
            z0 = *reinterpret_cast<const u32 *>(z);
            z1 = *reinterpret_cast<const u32 *>(z + 8);
        }
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int pt = 0; pt < PARTS; pt++) mma_bf16(den[i], q.x[pt][i][ks], z0, z1);
    }
    float inverse[MT][2];
    u16 *to[MT][2];                       // where a row goes; null: it is answered elsewhere
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = __shfl_sync(0xffffffffu, den[i][half * 2] + den[i][half * 2 + 1], lane & ~3);
            inverse[i][half] = 1.0f / fmaxf(total, 1e-6f);
            int token = at + first + i * 16 + half * 8 + r;
            bool mine = token < s.end && !(b.mask && b.mask[(u64)token * b.groups + h]);
            to[i][half] = mine ? b.out + (u64)token * b.out_stride + (u64)head * b.out_head + tile * DVT + (t & 1) * 8 + (t >> 1) * 16 : nullptr;
        }
#pragma unroll 1
    for (int n0 = 0; n0 < DVT; n0 += 32) {
        float o[MT][4][4] = {};
#pragma unroll
        for (int ks = 0; ks < F / 16; ks++) {
            u32 x[PARTS][2][4];
#pragma unroll
            for (int pt = 0; pt < PARTS; pt++)
#pragma unroll
                for (int jj = 0; jj < 2; jj++)
                    ldmatrix_trans(x[pt][jj], s_at + (pt * F * VS + ks * 16 * VS + n0 + jj * 16) * 2);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    mma_bf16(o[i][j], q.x[0][i][ks], x[0][j >> 1][(j & 1) * 2], x[0][j >> 1][(j & 1) * 2 + 1]);
                    if (SPLIT) {
                        mma_bf16(o[i][j], q.x[PARTS - 1][i][ks], x[0][j >> 1][(j & 1) * 2], x[0][j >> 1][(j & 1) * 2 + 1]);
                        mma_bf16(o[i][j], q.x[0][i][ks], x[PARTS - 1][j >> 1][(j & 1) * 2], x[PARTS - 1][j >> 1][(j & 1) * 2 + 1]);
                    }
                }
        }
#pragma unroll
        for (int kb = 0; kb < KB; kb++) {
            if (kb * 16 >= first + ROWS) break;
            u32 x[PARTS][2][4];
#pragma unroll
            for (int pt = 0; pt < PARTS; pt++)
#pragma unroll
                for (int jj = 0; jj < 2; jj++)
                    ldmatrix_trans(x[pt][jj], v_at + (pt * CHUNK * VS + kb * 16 * VS + n0 + jj * 16) * 2);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    mma_bf16(o[i][j], p[0][i][kb], x[0][j >> 1][(j & 1) * 2], x[0][j >> 1][(j & 1) * 2 + 1]);
                    if (SPLIT) {
                        mma_bf16(o[i][j], p[PARTS - 1][i][kb], x[0][j >> 1][(j & 1) * 2], x[0][j >> 1][(j & 1) * 2 + 1]);
                        mma_bf16(o[i][j], p[0][i][kb], x[PARTS - 1][j >> 1][(j & 1) * 2], x[PARTS - 1][j >> 1][(j & 1) * 2 + 1]);
                    }
                }
        }
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float w = inverse[i][half];
                u32 x[4];
#pragma unroll
                for (int j = 0; j < 4; j++) x[j] = pack(o[i][j][half * 2] * w, o[i][j][half * 2 + 1] * w);
                // The four lanes of a row transpose: each then has eight neighbouring values.
                bool odd = t & 1, far = t & 2;
                u32 y0 = __shfl_xor_sync(0xffffffffu, odd ? x[0] : x[1], 1), y1 = __shfl_xor_sync(0xffffffffu, odd ? x[2] : x[3], 1);
                u32 a0 = odd ? y0 : x[0], a1 = odd ? x[1] : y0, b0 = odd ? y1 : x[2], b1 = odd ? x[3] : y1;
                u32 z0 = __shfl_xor_sync(0xffffffffu, far ? a0 : b0, 2), z1 = __shfl_xor_sync(0xffffffffu, far ? a1 : b1, 2);
                if (!to[i][half]) continue;
                *reinterpret_cast<uint4 *>(to[i][half] + n0) = far ? make_uint4(z0, z1, b0, b1) : make_uint4(a0, a1, z0, z1);
            }
    }
    if (DV < D && tile == VTILES - 1) {
#pragma unroll
        for (int i = 0; i < MT * 2; i++)
            if (u16 *p = to[i >> 1][i & 1])
                for (int c = DVT; c < D - (VTILES - 1) * DVT; c += 32) *reinterpret_cast<uint4 *>(p + c) = make_uint4(0, 0, 0, 0);
    }
}

// Is any token of the tile answered here? Uniform in a warp.
__device__ __forceinline__ bool wanted(const Batch &b, const Segment &s, int at, int h) {
    int token = at + (threadIdx.x & 31);
    bool mine = (threadIdx.x & 31) < ROWS && token < s.end && !(b.mask && b.mask[(u64)token * b.groups + h]);
    return __any_sync(0xffffffffu, mine);
}

// grid (segments, H_k, VTILES), THREADS threads, SHARED_FORWARD bytes. The last segment of a row leaves the state in the slot.
extern "C" __global__ void __launch_bounds__(THREADS, 1) linear_attention_forward(const __grid_constant__ Batch b) {
    extern __shared__ __align__(16) u16 shared[];
    Segment s;
    if (!find_segment(b, blockIdx.x, s)) return;
    int h = blockIdx.y, tile = blockIdx.z, slot = s.slot, warp = threadIdx.x >> 5;
    Shared m;
    place(m, shared, true);
    load_projection(b, m, h);
    State st;
    send_chunk(b, s, m, s.begin, h, tile, 0);
    if (s.count > 1)
        exchange_work<false>(b.work + (((u64)(blockIdx.x - 1 + (s.index ? 0 : s.count)) * b.groups + h) * VTILES + tile) * WORK, st);
    else if (s.fresh) clear(st);
    else exchange_slot<false>(b, st, slot, h, tile);
    Queries q;
    int turn = 0;
    for (int at = s.begin; at < s.end; at += CHUNK, turn ^= 1) {
        copies_here();
        __syncthreads();
        put_chunk(m, s.end - at);
        put_state(m, st);
        __syncthreads();
        if (at + CHUNK < s.end) send_chunk(b, s, m, at + CHUNK, h, tile, turn ^ 1);
        if (at + CHUNK < s.end) prefetch_queries(b, s, at + CHUNK, h);
        for (int work = warp; work < TILES; work += WARPS) {
            if (!wanted(b, s, at + first_of(work), h)) continue;
            load_queries(b, s, at + first_of(work), head_of(h, work), q);
            Features f;
            map_queries(m, q, f);
            answer(b, s, m, f, at, first_of(work), h, head_of(h, work), tile, turn);
        }
        add_chunk(m, st, turn);
    }
    if (s.index == s.count - 1) exchange_slot<true>(b, st, slot, h, tile);
}
