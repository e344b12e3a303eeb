// Sizes are macros, so that every loop unrolls and every register array has a constant index:
//   HEAD_DIM D, FEATURE_DIM F (64, 128 or 256; equal to D where nothing is projected), VALUE_DIM D_v, GROUP g = query heads a K/V head,
//   BLOCK_SIZE tokens a page, DTYPE 0 bfloat16 / 1 float16, PROJECTED 0 / 1, VALUE_TILE columns of the state a block of threads holds.
// No header of the toolkit is included: NVRTC compiles this alone.
#pragma once

#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef FEATURE_DIM
#define FEATURE_DIM HEAD_DIM
#endif
#ifndef VALUE_DIM
#define VALUE_DIM HEAD_DIM
#endif
#ifndef GROUP
#define GROUP 4
#endif
#ifndef BLOCK_SIZE
#define BLOCK_SIZE 16
#endif
#ifndef DTYPE
#define DTYPE 0
#endif
#ifndef PROJECTED
#define PROJECTED 0
#endif
#ifndef VALUE_TILE
#define VALUE_TILE ((DTYPE == 1 || FEATURE_DIM > 128) ? (VALUE_DIM % 64 == 0 ? 64 : 32) \
                    : VALUE_DIM % 128 == 0 ? 128 : VALUE_DIM % 96 == 0 ? 96 : VALUE_DIM % 64 == 0 ? 64 : 32)
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int D = HEAD_DIM, F = FEATURE_DIM, DV = VALUE_DIM, DVT = VALUE_TILE, G = GROUP;
constexpr int CHUNK = 64;                 // tokens that meet in one matrix product
constexpr bool SPLIT = DTYPE == 1;        // float16: two bfloat16 an operand keep its precision and float32's range
constexpr int PARTS = SPLIT ? 2 : 1;
// 16 warps of 128 registers hide latency better than 8 of 255; what needs more registers takes 8.
constexpr int WARPS = SPLIT || F > 128 ? 8 : 16, THREADS = WARPS * 32;
constexpr int MT = 1;                       // 16-row tiles of queries a warp holds at once
static_assert(F == 64 || F == 128 || F == 256, "FEATURE_DIM is 64, 128 or 256");
static_assert(PROJECTED || F == D, "without a projection FEATURE_DIM is HEAD_DIM");
static_assert(D % 32 == 0 && DV % 32 == 0 && DVT % 32 == 0 && DV % DVT == 0, "sizes are multiples of 32");
constexpr int PAD = 8;                    // elements behind each row of shared memory: ldmatrix then meets no bank twice
constexpr int KS = F + PAD, VS = DVT + PAD, XS = D + PAD;
constexpr int VTILES = DV / DVT;
// The state is held by the warps as WM (features) × WN (values).
constexpr int WM = F / 16 < WARPS ? F / 16 : WARPS, WN = WARPS / WM;
constexpr int MR = F / WM, NR = DVT / WN, SM_ = MR / 16, SN = NR / 8;
static_assert(NR % 8 == 0, "a warp holds whole tiles of 8 values");

// Where a row of the batch lies, where its keys and values come from, and where its state is.
struct Batch {
    const u16 *q, *k, *v;                 // [tokens, heads, size], rows contiguous in a head
    const u16 *pages;                     // [blocks, H_k, BLOCK_SIZE, 2·D] (keys, then values), or null: k and v
    const int *table;                     // [rows, table_stride]: pages of a row
    const int *start, *end;               // [rows] tokens of a row in the batch; ascending
    const int *position;                  // [rows] position of the token at start (read with pages)
    const int *slot;                      // [rows] place of the state; below 0: the row is left alone
    const u8 *fresh;                      // [rows] not 0: the state starts from zeros, whatever its slot holds
    const u8 *mask;                       // [tokens, H_k] not 0: this token is answered elsewhere; or null
    const u16 *proj;                      // [H_k, F, D] or null
    float *state, *norm;                  // [slots, H_k, F, D_v], [slots, H_k, F]
    float *work;                          // [segments, H_k, VTILES, WORK]
    u16 *out;                             // [tokens, H, D_out]
    u64 q_stride, k_stride, v_stride, out_stride;   // elements from token to token
    u64 k_head, v_head, out_head;                   // elements from head to head
    u64 block_stride, page_head, page_token;
    int table_stride, rows, groups, segment, out_size, flags;
};
enum { SKIP_LAST = 1 };
constexpr int WORK = F * DVT + F;         // floats of one segment's state in a block of threads

// A row of the batch cut into segments: block x of the grid. Rows need no table: segment indices of a row start at start / N + row.
struct Segment {
    int row, index, count, begin, end, slot;
    bool fresh;
    int shift;                            // position of a token less its place in the batch
};
__device__ __forceinline__ bool find_segment(const Batch &b, int x, Segment &s) {
    int lo = 0, hi = b.rows - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) >> 1;
        if (b.start[mid] / b.segment + mid <= x) lo = mid;
        else hi = mid - 1;
    }
    // All that is read of the row is under way at once.
    int first = b.start[lo], last = b.end[lo], slot = b.slot[lo], position = b.pages ? b.position[lo] : first;
    s.fresh = b.fresh && b.fresh[lo];
    s.row = lo;
    s.slot = slot;
    s.index = x - (first / b.segment + lo);
    s.count = (last - first + b.segment - 1) / b.segment;
    s.begin = first + s.index * b.segment;
    s.end = min(last, s.begin + b.segment);
    s.shift = position - first;
    return s.index >= 0 && s.index < s.count && slot >= 0;
}

__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ float2 unpack_bf16(u32 x) {
    return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
}
__device__ __forceinline__ float half_to_float(u16 x) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
    return r;
}
// Two elements of the inputs' type.
__device__ __forceinline__ float2 unpack(u32 x) {
    if (DTYPE == 0) return unpack_bf16(x);
    return make_float2(half_to_float(u16(x)), half_to_float(u16(x >> 16)));
}
__device__ __forceinline__ u32 pack(float low, float high) {
    if (DTYPE == 0) return pack_bf16(low, high);
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
// A pair as operand: rounded to bfloat16, and what that left over.
__device__ __forceinline__ void operand(float a, float b, u32 (&o)[PARTS]) {
    o[0] = pack_bf16(a, b);
    if (SPLIT) {
        float2 h = unpack_bf16(o[0]);
        o[PARTS - 1] = pack_bf16(a - h.x, b - h.y);
    }
}
// phi(x) = elu(x) + 1, which below 0 is exp(x). The clamp keeps the other branch of the sum at exactly 1.
__device__ __forceinline__ float phi(float x) {
    float low, high, e;
    asm("min.NaN.f32 %0, %1, 0f00000000;" : "=f"(low) : "f"(x));
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(high) : "f"(x));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(low * 1.4426950408889634f));
    return high + e;
}
// phi of a pair of inputs, as operand. In bfloat16 one half of the sum is exact before and the other after rounding, so the sum is made of pairs.
__device__ __forceinline__ void map_pair(u32 x, u32 (&o)[PARTS]) {
    if (DTYPE == 0) {
        u32 low, high, e;
        asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(low) : "r"(x), "r"(0u));
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(high) : "r"(x), "r"(0u));
        float a, b;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(a) : "f"(__uint_as_float(low << 16) * 1.4426950408889634f));
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(b) : "f"(__uint_as_float(low & 0xffff0000u) * 1.4426950408889634f));
        e = pack_bf16(a, b);
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(o[0]) : "r"(high), "r"(0x3f803f80u), "r"(e));
    } else {
        float2 f = unpack(x);
        operand(phi(f.x), phi(f.y), o);
    }
}

__device__ __forceinline__ u32 shared_address(const void *p) {
    return (u32)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void ldmatrix(u32 (&r)[4], u32 a) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
__device__ __forceinline__ void ldmatrix_trans(u32 (&r)[4], u32 a) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
__device__ __forceinline__ void mma_bf16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Operands of the inputs' own type.
__device__ __forceinline__ void mma_input(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if (DTYPE == 0) {
        mma_bf16(c, a, b0, b1);
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// Eight neighbouring elements a thread loads as 16 bytes are, in a fragment, the pairs of four k-steps' halves. So that the loads fit the
// fragments without a shuffle, element 8t + 2j + b of each 32 is kept at place 8j + 2t + b. Both operands of a product use the order,
// so it never shows; only the state in global memory is in the natural one.
__device__ __forceinline__ int natural(int place) {
    return (place & ~31) + ((place >> 1) & 3) * 8 + ((place >> 3) & 3) * 2 + (place & 1);
}
// Store the 8 elements of unit u (elements 8u … 8u+7 of a row) at their places.
__device__ __forceinline__ void store_unit(u16 *row, int u, const u32 (&x)[4]) {
    u32 *p = reinterpret_cast<u32 *>(row + (u & ~3) * 8 + (u & 3) * 2);
#pragma unroll
    for (int j = 0; j < 4; j++) p[j * 4] = x[j];
}

__device__ __forceinline__ void copy16(u16 *to, const u16 *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copies_sent() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void copies_here() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }
constexpr int KALL = CHUNK * D / 8, VALL = CHUNK * DVT / 8;     // 16-byte units of a chunk
constexpr int KUNITS = (KALL + THREADS - 1) / THREADS, VUNITS = (VALL + THREADS - 1) / THREADS;

__device__ __forceinline__ uint4 load16(const u16 *p) {
    return *reinterpret_cast<const uint4 *>(p);
}
// Row `token` of the batch, at key head h: where its K (or V) lies.
__device__ __forceinline__ const u16 *key_at(const Batch &b, const Segment &s, int token, int h, bool value) {
    if (b.pages) {
        int p = token + s.shift;
        u64 block = (u64)b.table[(u64)s.row * b.table_stride + p / BLOCK_SIZE];
        return b.pages + block * b.block_stride + h * b.page_head + (u64)(p % BLOCK_SIZE) * b.page_token + (value ? D : 0);
    }
    return value ? b.v + (u64)token * b.v_stride + h * b.v_head : b.k + (u64)token * b.k_stride + h * b.k_head;
}
// Shared memory of a block of threads. Rows of k, v, s, x and w have PAD elements behind them; rows of the landing places have none, each
// thread takes from there what it has sent itself.
struct Shared {
    u16 *k[PARTS];                        // phi(K) of the chunk
    u16 *v;                               // V, twice CHUNK rows: of this chunk and of the next; SPLIT: two parts of this one
    u16 *s[PARTS], *z;                    // the state before the chunk; z [2][F]: rounded, and what that left over
    u16 *k_land, *v_land;
    u16 *w;                               // the projection
};
constexpr int LAND = PROJECTED ? XS : D;  // elements of a row of keys that has landed: ldmatrix reads them where they are projected
constexpr int SHARED_STATE = (PARTS * CHUNK * KS + 2 * CHUNK * VS + CHUNK * LAND + (SPLIT ? CHUNK * DVT : 0) + (PROJECTED ? F * XS : 0)) * 2;
constexpr int SHARED_FORWARD = SHARED_STATE + (PARTS * F * VS + 2 * F) * 2;
__device__ __forceinline__ void place(Shared &m, u16 *base, bool forward) {
#pragma unroll
    for (int i = 0; i < PARTS; i++) { m.k[i] = base; base += CHUNK * KS; }
    m.v = base; base += 2 * CHUNK * VS;
    m.k_land = base; base += CHUNK * LAND;
    if (SPLIT) { m.v_land = base; base += CHUNK * DVT; }
    if (PROJECTED) { m.w = base; base += F * XS; }
    if (forward) {
#pragma unroll
        for (int i = 0; i < PARTS; i++) { m.s[i] = base; base += F * VS; }
        m.z = base;
    }
}
// Send for the 64 tokens from `at` on; what lies at or behind s.end comes as zeros. `turn`: which of v takes them.
template <int ALL, int SIZE, bool VALUE>
__device__ __forceinline__ void send(const Batch &b, const Segment &s, u16 *to, int to_stride, int at, int h, int column) {
    constexpr int UNITS = (ALL + THREADS - 1) / THREADS;
    const u16 *flat = VALUE ? b.v + h * b.v_head : b.k + h * b.k_head;
    u64 stride = VALUE ? b.v_stride : b.k_stride;
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
        int unit = threadIdx.x + i * THREADS, row = unit / (SIZE / 8), u = unit % (SIZE / 8), token = at + row;
        if (ALL % THREADS && unit >= ALL) continue;
        const u16 *from;
        if (b.pages) from = token < s.end ? key_at(b, s, token, h, VALUE) : b.pages;
        else from = flat + token * stride;
        copy16(to + row * to_stride + u * 8, from + column + u * 8, token < s.end);
    }
}
__device__ __forceinline__ void send_chunk(const Batch &b, const Segment &s, const Shared &m, int at, int h, int tile, int turn) {
    send<KALL, D, false>(b, s, m.k_land, LAND, at, h, 0);
    if (SPLIT) send<VALL, DVT, true>(b, s, m.v_land, DVT, at, h, tile * DVT);
    else send<VALL, DVT, true>(b, s, m.v + turn * CHUNK * VS, VS, at, h, tile * DVT);
    copies_sent();
}
__device__ __forceinline__ void load_projection(const Batch &b, const Shared &m, int h) {
    for (int unit = threadIdx.x; PROJECTED && unit < F * D / 8; unit += THREADS) {
        int f = unit / (D / 8), u = unit % (D / 8);
        *reinterpret_cast<uint4 *>(m.w + f * XS + u * 8) = load16(b.proj + ((u64)h * F + f) * D + u * 8);
    }
}
// phi(k) of the chunk that has landed (and v, where it is split) to its place. Ends before a barrier.
__device__ __forceinline__ void put_chunk(const Shared &m, int valid) {
    if (SPLIT) {
#pragma unroll
        for (int i = 0; i < VUNITS; i++) {
            int unit = threadIdx.x + i * THREADS;
            if (VALL % THREADS && unit >= VALL) continue;
            uint4 x = load16(m.v_land + unit * 8);
            u32 e[4] = {x.x, x.y, x.z, x.w}, part[2][4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float2 f = unpack(e[j]);
                u32 o[PARTS];
                operand(f.x, f.y, o);
                part[0][j] = o[0];
                part[1][j] = o[PARTS - 1];
            }
#pragma unroll
            for (int p = 0; p < 2; p++)
                *reinterpret_cast<uint4 *>(m.v + (p) * CHUNK * VS + unit / (DVT / 8) * VS + unit % (DVT / 8) * 8) = make_uint4(part[p][0], part[p][1], part[p][2], part[p][3]);
        }
    }
#pragma unroll
    for (int i = 0; !PROJECTED && i < KUNITS; i++) {
        int unit = threadIdx.x + i * THREADS, row = unit / (D / 8), u = unit % (D / 8);
        if (KALL % THREADS && unit >= KALL) continue;
        uint4 raw = load16(m.k_land + unit * 8);
        u32 e[4] = {raw.x, raw.y, raw.z, raw.w};
        u32 part[PARTS][4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            u32 o[PARTS];
            map_pair(e[j], o);
#pragma unroll
            for (int p = 0; p < PARTS; p++) part[p][j] = row < valid ? o[p] : 0u;
        }
#pragma unroll
        for (int p = 0; p < PARTS; p++) store_unit(m.k[p] + row * KS, u, part[p]);
    }
    if (PROJECTED) {
        // phi(W k): [64 × F], a warp takes 16 rows and a share of the features.
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, r0 = (warp & 3) * 16, t = lane & 3, rr = r0 + (lane >> 2);
        constexpr int SHARE = F / (WARPS / 4);
        for (int n0 = (warp >> 2) * SHARE; n0 < (warp >> 2) * SHARE + SHARE; n0 += 16) {
            float c[2][4] = {};
#pragma unroll 4
            for (int k0 = 0; k0 < D; k0 += 16) {
                u32 a[4], w[4];
                ldmatrix(a, shared_address(m.k_land + (r0 + (lane & 15)) * XS + k0 + (lane >> 4) * 8));
                ldmatrix(w, shared_address(m.w + (n0 + (lane & 7) + (lane >> 4) * 8) * XS + k0 + ((lane >> 3) & 1) * 8));
                mma_input(c[0], a, w[0], w[1]);
                mma_input(c[1], a, w[2], w[3]);
            }
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    u32 o[PARTS];
                    int row = rr + half * 8;
                    operand(row < valid ? phi(c[j][half * 2]) : 0.0f, row < valid ? phi(c[j][half * 2 + 1]) : 0.0f, o);
#pragma unroll
                    for (int p = 0; p < PARTS; p++) *reinterpret_cast<u32 *>(m.k[p] + row * KS + n0 + j * 8 + t * 2) = o[p];
                }
        }
    }
}

// The running state of a block of threads, in the fragments of its warps.
struct State {
    float s[SM_][SN][4], z[SM_][4];
};
__device__ __forceinline__ void clear(State &st) {
#pragma unroll
    for (int i = 0; i < SM_; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) st.z[i][e] = 0.0f;
#pragma unroll
        for (int j = 0; j < SN; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) st.s[i][j][e] = 0.0f;
    }
}
__device__ __forceinline__ int feature_of(int place_) {
    return PROJECTED ? place_ : natural(place_);
}
template <bool STORE>
__device__ __forceinline__ void exchange_slot(const Batch &b, State &st, int slot, int h, int tile) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, m0 = (warp % WM) * MR, n0 = (warp / WM) * NR, r = lane >> 2, t = lane & 3;
    float *state = b.state + ((u64)slot * b.groups + h) * F * DV + tile * DVT, *norm = b.norm + ((u64)slot * b.groups + h) * F;
#pragma unroll
    for (int i = 0; i < SM_; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int f = feature_of(m0 + i * 16 + r + half * 8);
#pragma unroll
            for (int j = 0; j < SN; j++) {
                float2 *p = reinterpret_cast<float2 *>(state + (u64)f * DV + (n0 + j * 8 + t * 2));
                if (STORE) *p = make_float2(st.s[i][j][half * 2], st.s[i][j][half * 2 + 1]);
                else { float2 x = *p; st.s[i][j][half * 2] = x.x; st.s[i][j][half * 2 + 1] = x.y; }
            }
            if (t == 0 && warp < WM) {
                if (STORE) { if (tile == 0) norm[f] = st.z[i][half * 2]; }
                else st.z[i][half * 2] = norm[f];
            }
        }
}
// Fragments to and from the workspace, in the order of the registers.
template <bool STORE>
__device__ __forceinline__ void exchange_work(float *work, State &st) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float4 *p = reinterpret_cast<float4 *>(work) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < SM_; i++)
#pragma unroll
        for (int j = 0; j < SN; j++) {
            float4 *at = p + (i * SN + j) * THREADS;
            if (STORE) *at = make_float4(st.s[i][j][0], st.s[i][j][1], st.s[i][j][2], st.s[i][j][3]);
            else { float4 x = *at; st.s[i][j][0] = x.x; st.s[i][j][1] = x.y; st.s[i][j][2] = x.z; st.s[i][j][3] = x.w; }
        }
    if (warp < WM && (lane & 3) == 0) {
        float *z = work + F * DVT + warp * MR + (lane >> 2);
#pragma unroll
        for (int i = 0; i < SM_; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                if (STORE) z[i * 16 + half * 8] = st.z[i][half * 2];
                else st.z[i][half * 2] = z[i * 16 + half * 8];
            }
    }
}
// state += phi(K)^T V of the chunk in shared memory.
__device__ __forceinline__ void add_chunk(const Shared &m, State &st, int turn) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, m0 = (warp % WM) * MR, n0 = (warp / WM) * NR;
    u32 one = lane < 4 ? 0x3f803f80u : 0u;  // a column of ones: z is the state's column of value 1
#pragma unroll
    for (int k0 = 0; k0 < CHUNK; k0 += 16) {
        u32 a[PARTS][SM_][4];
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
            for (int i = 0; i < SM_; i++)
                ldmatrix_trans(a[p][i], shared_address(m.k[p] + (k0 + (lane & 7) + (lane >> 4) * 8) * KS + m0 + i * 16 + ((lane >> 3) & 1) * 8));
#pragma unroll
        for (int j = 0; j < SN; j += 2) {
            u32 v[PARTS][4];
#pragma unroll
            for (int p = 0; p < PARTS; p++)
                ldmatrix_trans(v[p], shared_address(m.v + (SPLIT ? p : turn) * CHUNK * VS + (k0 + (lane & 15)) * VS + n0 + j * 8 + (lane >> 4) * 8));
#pragma unroll
            for (int i = 0; i < SM_; i++) {
                mma_bf16(st.s[i][j], a[0][i], v[0][0], v[0][1]);
                mma_bf16(st.s[i][j + 1], a[0][i], v[0][2], v[0][3]);
                if (SPLIT) {
                    mma_bf16(st.s[i][j], a[PARTS - 1][i], v[0][0], v[0][1]);
                    mma_bf16(st.s[i][j + 1], a[PARTS - 1][i], v[0][2], v[0][3]);
                    mma_bf16(st.s[i][j], a[0][i], v[PARTS - 1][0], v[PARTS - 1][1]);
                    mma_bf16(st.s[i][j + 1], a[0][i], v[PARTS - 1][2], v[PARTS - 1][3]);
                }
            }
        }
        if (warp < WM) {
#pragma unroll
            for (int i = 0; i < SM_; i++)
#pragma unroll
                for (int p = 0; p < PARTS; p++) mma_bf16(st.z[i], a[p][i], one, one);
        }
    }
}
