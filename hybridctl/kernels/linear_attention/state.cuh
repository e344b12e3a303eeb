// The state of segments: the first pass of a prefill, and the absorption of pages.
#pragma once
#include "common.cuh"

// Sum of phi(k) v^T of every segment into the workspace; the first of a row adds the state that the row comes with. Where a row is one segment
// and its answers are not asked for (SKIP_LAST unset), the sum goes to the slot at once.
// grid (segments, H_k, VTILES), THREADS threads, SHARED_STATE bytes.
extern "C" __global__ void __launch_bounds__(THREADS, SPLIT || F > 128 ? 1 : 2) linear_attention_state(const __grid_constant__ Batch b) {
    extern __shared__ __align__(16) u16 shared[];
    Segment s;
    if (!find_segment(b, blockIdx.x, s)) return;
    int h = blockIdx.y, tile = blockIdx.z, slot = s.slot;
    float *work = b.work + (((u64)blockIdx.x * b.groups + h) * VTILES + tile) * WORK;
    bool fresh = s.fresh;
    if ((b.flags & SKIP_LAST) && s.index == s.count - 1) {
        // Of the forward pass the last segment writes the slot, maybe before the first one has run: what was in it goes there by the workspace.
        if (s.count == 1) return;
        State st;
        clear(st);
        if (!fresh) exchange_slot<false>(b, st, slot, h, tile);
        exchange_work<true>(work, st);
        return;
    }
    Shared m;
    place(m, shared, false);
    load_projection(b, m, h);
    State st;
    clear(st);
    send_chunk(b, s, m, s.begin, h, tile, 0);
    if (s.index == 0 && !fresh) exchange_slot<false>(b, st, slot, h, tile);
    int turn = 0;
    for (int at = s.begin; at < s.end; at += CHUNK, turn ^= 1) {
        copies_here();
        __syncthreads();
        put_chunk(m, s.end - at);
        __syncthreads();
        if (at + CHUNK < s.end) send_chunk(b, s, m, at + CHUNK, h, tile, turn ^ 1);
        add_chunk(m, st, turn);
    }
    if (s.count == 1) exchange_slot<true>(b, st, slot, h, tile);
    else exchange_work<true>(work, st);
}

// Running sums over the segments of each row, in place; the last one of a row is not there (its state is written by the forward pass).
// grid (rows, H_k · VTILES, ceil(WORK / 4 / THREADS)).
extern "C" __global__ void __launch_bounds__(THREADS) linear_attention_scan(const __grid_constant__ Batch b) {
    int row = blockIdx.x, at = blockIdx.z * THREADS + threadIdx.x;
    if (b.slot[row] < 0 || at >= WORK / 4) return;
    int first = b.start[row] / b.segment + row, count = (b.end[row] - b.start[row] + b.segment - 1) / b.segment - 1;
    u64 stride = (u64)b.groups * VTILES * WORK / 4;
    float4 *p = reinterpret_cast<float4 *>(b.work + ((u64)first * b.groups * VTILES + blockIdx.y) * WORK) + at;
    float4 sum = make_float4(0, 0, 0, 0);
    int i = 0;
    for (; i + 8 <= count; i += 8) {
        float4 x[8];
#pragma unroll
        for (int j = 0; j < 8; j++) x[j] = p[(i + j) * stride];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            sum.x += x[j].x; sum.y += x[j].y; sum.z += x[j].z; sum.w += x[j].w;
            p[(i + j) * stride] = sum;
        }
    }
    for (; i < count; i++) {
        float4 x = p[i * stride];
        sum.x += x.x; sum.y += x.y; sum.z += x.z; sum.w += x.w;
        p[i * stride] = sum;
    }
}

// The sum of a row's segments into its slot (absorption of rows longer than a segment).
// grid (rows, H_k, VTILES · 4): a block of threads takes a quarter of the register tiles.
extern "C" __global__ void __launch_bounds__(THREADS) linear_attention_reduce(const __grid_constant__ Batch b) {
    int row = blockIdx.x, h = blockIdx.y, tile = blockIdx.z >> 2, quarter = blockIdx.z & 3, slot = b.slot[row];
    int first = b.start[row] / b.segment + row, count = (b.end[row] - b.start[row] + b.segment - 1) / b.segment;
    if (slot < 0 || count < 2) return;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, m0 = (warp % WM) * MR, n0 = (warp / WM) * NR, r = lane >> 2, t = lane & 3;
    u64 stride = (u64)b.groups * VTILES * WORK;
    const float *work = b.work + (((u64)first * b.groups + h) * VTILES + tile) * WORK;
    float *state = b.state + ((u64)slot * b.groups + h) * F * DV + tile * DVT, *norm = b.norm + ((u64)slot * b.groups + h) * F;
    for (int tilei = quarter; tilei < SM_ * SN; tilei += 4) {
        int i = tilei / SN, j = tilei % SN;
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
        for (int c = 0; c < count; c++) {
            float4 x = reinterpret_cast<const float4 *>(work + c * stride)[tilei * THREADS + threadIdx.x];
            sum.x += x.x; sum.y += x.y; sum.z += x.z; sum.w += x.w;
        }
        int n = n0 + j * 8 + t * 2;
        *reinterpret_cast<float2 *>(state + (u64)feature_of(m0 + i * 16 + r) * DV + n) = make_float2(sum.x, sum.y);
        *reinterpret_cast<float2 *>(state + (u64)feature_of(m0 + i * 16 + r + 8) * DV + n) = make_float2(sum.z, sum.w);
    }
    if (tile == 0 && quarter == 0)
        for (int f = threadIdx.x; f < F; f += THREADS) {
            float sum = 0;
#pragma unroll 8
            for (int c = 0; c < count; c++) sum += work[c * stride + F * DVT + f];
            norm[feature_of(f)] = sum;
        }
}
