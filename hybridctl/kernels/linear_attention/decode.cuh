// One token a row: its key and value enter the state, its queries read it, in one pass over the state, in place.
#pragma once
#include "common.cuh"

constexpr int DTHREADS = 256;
constexpr int COLUMNS = DV / 4, LANES = DTHREADS / COLUMNS;  // threads as LANES (features) × COLUMNS (four values each)
constexpr int STEPS = (F + LANES - 1) / LANES, BATCH_STEPS = STEPS < 8 ? STEPS : 8;
constexpr int DECODE_SHARED = (F + G * F + DV + G + G * D + D + LANES * G * DV) * 4;

__device__ __forceinline__ float element(const u16 *p) {
    return DTYPE == 0 ? __uint_as_float((u32)*p << 16) : half_to_float(*p);
}

// grid (rows, H_k), DTHREADS threads, DECODE_SHARED bytes. Row r is token start[r] of the batch; below 0 in slot: nothing is read or written.
extern "C" __global__ void __launch_bounds__(DTHREADS, 3) linear_attention_decode(const __grid_constant__ Batch b) {
    extern __shared__ __align__(16) float fs[];
    float *fk = fs, *fq = fk + F, *v = fq + G * F, *x = v + DV, *red = x + (G + 1) * D, *den = red + LANES * G * DV;
    int row = blockIdx.x, h = blockIdx.y, tid = threadIdx.x, slot = b.slot[row];
    if (slot < 0) return;
    int token = b.start[row];
    bool fresh = b.fresh && b.fresh[row];
    int lane = tid / COLUMNS, column = tid % COLUMNS;
    bool active = lane < LANES;
    float4 *state = reinterpret_cast<float4 *>(b.state + ((u64)slot * b.groups + h) * F * DV) + (u64)lane * COLUMNS + column;
    float *norm = b.norm + ((u64)slot * b.groups + h) * F;
    float4 old[BATCH_STEPS];
#pragma unroll
    for (int i = 0; i < BATCH_STEPS; i++)
        old[i] = active && !fresh && i * LANES + lane < F ? __ldcs(state + (u64)i * LANES * COLUMNS) : make_float4(0, 0, 0, 0);
    const u16 *q = b.q + (u64)token * b.q_stride + (u64)h * G * D, *k = b.k + (u64)token * b.k_stride + h * b.k_head;
    const u16 *value = b.v + (u64)token * b.v_stride + h * b.v_head;
    for (int i = tid; i < DV; i += DTHREADS) v[i] = element(value + i);
    if (PROJECTED) {
        for (int i = tid; i < (G + 1) * D; i += DTHREADS) x[i] = element(i < G * D ? q + i : k + i - G * D);
        __syncthreads();
        const u16 *w = b.proj + (u64)h * F * D;
        // A warp takes a feature of all vectors: neighbouring lanes read neighbouring elements of its row.
        for (int f = tid >> 5; f < F; f += (DTHREADS / 32)) {
            float sum[G + 1] = {};
            for (int d = (tid & 31) * 2; d < D; d += 64) {
                float2 e = unpack(*reinterpret_cast<const u32 *>(w + (u64)f * D + d));
#pragma unroll
                for (int g = 0; g <= G; g++) sum[g] += e.x * x[g * D + d] + e.y * x[g * D + d + 1];
            }
#pragma unroll
            for (int g = 0; g <= G; g++) {
#pragma unroll
                for (int o = 16; o; o >>= 1) sum[g] += __shfl_xor_sync(0xffffffffu, sum[g], o);
                if ((tid & 31) == 0) (g < G ? fq[g * F + f] : fk[f]) = phi(sum[g]);
            }
        }
    } else {
        for (int i = tid; i < G * F; i += DTHREADS) fq[i] = phi(element(q + i));
        for (int i = tid; i < F; i += DTHREADS) fk[i] = phi(element(k + i));
    }
    __syncthreads();
    float out[G][4] = {};
    float4 vv = active ? reinterpret_cast<const float4 *>(v)[column] : make_float4(0, 0, 0, 0);
    for (int i0 = 0; i0 < STEPS; i0 += BATCH_STEPS) {
        if (i0) {
#pragma unroll
            for (int i = 0; i < BATCH_STEPS; i++)
                old[i] = active && !fresh && (i0 + i) * LANES + lane < F ? __ldcs(state + (u64)(i0 + i) * LANES * COLUMNS) : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < BATCH_STEPS; i++) {
            int f = (i0 + i) * LANES + lane;
            if (!active || f >= F) continue;
            float a = fk[f];
            old[i].x += a * vv.x; old[i].y += a * vv.y; old[i].z += a * vv.z; old[i].w += a * vv.w;
            __stcs(state + (u64)(i0 + i) * LANES * COLUMNS, old[i]);
#pragma unroll
            for (int g = 0; g < G; g++) {
                float e = fq[g * F + f];
                out[g][0] += e * old[i].x; out[g][1] += e * old[i].y; out[g][2] += e * old[i].z; out[g][3] += e * old[i].w;
            }
        }
    }
    if (active) {
#pragma unroll
        for (int g = 0; g < G; g++)
            reinterpret_cast<float4 *>(red)[(lane * G + g) * COLUMNS + column] = make_float4(out[g][0], out[g][1], out[g][2], out[g][3]);
    }
    // z, and what the outputs are divided by.
    for (int g = tid >> 5; g < G; g += (DTHREADS / 32)) {
        float sum = 0;
        for (int f = tid & 31; f < F; f += 32) sum += fq[g * F + f] * ((fresh ? 0.0f : norm[f]) + fk[f]);
#pragma unroll
        for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
        if ((tid & 31) == 0) den[g] = fmaxf(sum, 1e-6f);
    }
    __syncthreads();
    for (int f = tid; f < F; f += DTHREADS) norm[f] = (fresh ? 0.0f : norm[f]) + fk[f];
    if (b.mask && b.mask[(u64)token * b.groups + h]) return;
    u16 *to = b.out + (u64)token * b.out_stride + (u64)h * G * b.out_head;
    for (int i = tid * 2; i < G * DV; i += DTHREADS * 2) {
        int g = i / DV, c = i % DV;
        float a = 0, e = 0;
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            float2 y = *reinterpret_cast<const float2 *>(red + (l * G + g) * DV + c);
            a += y.x;
            e += y.y;
        }
        *reinterpret_cast<u32 *>(to + (u64)g * b.out_head + c) = pack(a / den[g], e / den[g]);
    }
    constexpr int PADDING = DV < D ? D - DV : 1;
    for (int i = tid * 2; DV < D && i < G * PADDING; i += DTHREADS * 2)
        *reinterpret_cast<u32 *>(to + (u64)(i / PADDING) * b.out_head + DV + i % PADDING) = 0;
}
