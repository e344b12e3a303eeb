// The entropy score of positions in the band, and the mask that follows: position p looks at 64 landmark keys, floor((p + 1) / 64) apart.
#pragma once
#include "common.cuh"

struct Band {
    float *score;                         // [tokens, H_k] or null
    u8 *mask;                             // [tokens, H_k]: 1 flash, 0 linear
    int first, last;                      // positions first … last - 1 are judged; below: flash, above: linear
    float threshold, scale;               // a score above the threshold: flash; scale: 1 / sqrt(D), as the layer has it
};
constexpr int LANDMARKS = 64;
constexpr int ENTROPY_HEADS = G < 4 ? G : 4, ENTROPY_THREADS = 128 * ENTROPY_HEADS;  // four warps a head, and heads side by side
constexpr int ENTROPY_SHARED = LANDMARKS * XS * 2 + ENTROPY_HEADS * 64 * 4;

// grid (tiles, H_k), ENTROPY_THREADS threads, ENTROPY_SHARED bytes. Tiles of a row: positions with one floor((p + 1) / 64).
extern "C" __global__ void __launch_bounds__(ENTROPY_THREADS) linear_attention_entropy(const __grid_constant__ Batch b, const __grid_constant__ Band band) {
    extern __shared__ __align__(16) u16 keys[];
    int lo = 0, hi = b.rows - 1, h = blockIdx.y, lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3, side = threadIdx.x >> 7, t = lane & 3, r = lane >> 2;
    while (lo < hi) {
        int mid = (lo + hi + 1) >> 1;
        if (b.start[mid] / 64 + 2 * mid <= (int)blockIdx.x) lo = mid;
        else hi = mid - 1;
    }
    if (b.slot && b.slot[lo] < 0) return;
    Segment s;
    s.row = lo;
    s.begin = b.start[lo];
    s.end = b.end[lo];
    int position = b.position ? b.position[lo] : 0, stride = (position + 1) / 64 + (int)blockIdx.x - (s.begin / 64 + 2 * lo);
    int shift = s.begin - position;
    s.shift = -shift;
    int at = stride * 64 - 1 + shift;   // token of the tile's first position
    if (at >= s.end || at + 64 <= s.begin || s.end <= s.begin) return;
    int p0 = stride * 64 - 1;
    if (p0 + 64 <= band.first || p0 >= band.last) {
        for (int i = threadIdx.x; i < 64; i += ENTROPY_THREADS)
            if (at + i >= s.begin && at + i < s.end) band.mask[(u64)(at + i) * b.groups + h] = p0 + i < band.first;
        return;
    }
    for (int unit = threadIdx.x; unit < LANDMARKS * D / 8; unit += ENTROPY_THREADS) {
        int i = unit / (D / 8), u = unit % (D / 8);
        uint4 x = load16(key_at(b, s, i * stride + shift, h, false) + u * 8);
        u32 e[4] = {x.x, x.y, x.z, x.w};
        store_unit(keys + i * XS, u, e);
    }
    __syncthreads();
    float mean[2] = {};
    int tokens[2] = {at + warp * 16 + r, at + warp * 16 + r + 8};
    for (int g = side; g < G; g += ENTROPY_HEADS) {
        u32 q[D / 16][4];
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < D / 32; i++) {
                int token = tokens[half];
                uint4 x = make_uint4(0, 0, 0, 0);
                if (token >= s.begin && token < s.end) x = load16(b.q + (u64)token * b.q_stride + (u64)(h * G + g) * D + i * 32 + t * 8);
                q[i * 2][half] = x.x;
                q[i * 2][half + 2] = x.y;
                q[i * 2 + 1][half] = x.z;
                q[i * 2 + 1][half + 2] = x.w;
            }
        float c[LANDMARKS / 8][4] = {};
#pragma unroll
        for (int k0 = 0; k0 < D / 16; k0++)
#pragma unroll
            for (int n = 0; n < LANDMARKS; n += 16) {
                u32 k[4];
                ldmatrix(k, shared_address(keys + (n + (lane & 7) + (lane >> 4) * 8) * XS + k0 * 16 + ((lane >> 3) & 1) * 8));
                mma_input(c[n / 8], q[k0], k[0], k[1]);
                mma_input(c[n / 8 + 1], q[k0], k[2], k[3]);
            }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = -1e30f;
#pragma unroll
            for (int n = 0; n < LANDMARKS / 8; n++) top = fmaxf(top, fmaxf(c[n][half * 2], c[n][half * 2 + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            float total = 0, weighted = 0;
#pragma unroll
            for (int n = 0; n < LANDMARKS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float x = (c[n][half * 2 + e] - top) * band.scale, w = expf(x);
                    total += w;
                    weighted += w * x;
                }
#pragma unroll
            for (int o = 1; o < 4; o <<= 1) {
                total += __shfl_xor_sync(0xffffffffu, total, o);
                weighted += __shfl_xor_sync(0xffffffffu, weighted, o);
            }
            mean[half] += logf(total) - weighted / total;
        }
    }
    float *sums = reinterpret_cast<float *>(keys + LANDMARKS * XS);
    if (t == 0)
#pragma unroll
        for (int half = 0; half < 2; half++) sums[side * 64 + warp * 16 + half * 8 + r] = mean[half];
    __syncthreads();
    if (threadIdx.x >= 64) return;
    int token = at + threadIdx.x, p = p0 + threadIdx.x;
    if (token < s.begin || token >= s.end) return;
    float e = 0;
#pragma unroll
    for (int i = 0; i < ENTROPY_HEADS; i++) e += sums[i * 64 + threadIdx.x];
    e *= 1.0f / (G * 4.1588830833596715f);                              // log 64
    bool judged = p >= band.first && p < band.last;
    band.mask[(u64)token * b.groups + h] = judged ? e > band.threshold : p < band.first;
    if (band.score && judged) band.score[(u64)token * b.groups + h] = e;
}
