// A residual network's training step in bfloat16: 3×3 convolutions that normalise what they load and
// measure what they store, their two gradients, and the end of a block.
//
// Maps are (images, height, width, channels), contiguous. A program holds a tile of whole rows of one
// image in shared memory, loaded and normalised once, with zeros around the picture; all nine taps
// then read it there. Batch norm of M places per channel, x̂ = (y − μ)r, r = 1/√(σ² + ε):
//
//     z = γr(y − μ) + β,   ∂L/∂y = γr ∂L/∂z − γr² (y − μ) Σ x̂ ∂L/∂z / M − γr Σ ∂L/∂z / M.
//
// Its four sums per channel, Σ y, Σ y², Σ ∂L/∂z and Σ x̂ ∂L/∂z, are added up by each program in float32 and
// over the programs in float64, in COPIES so that they do not wait for one another; whoever needs them adds those.

typedef unsigned short bf16;  // its bits

constexpr int THREADS = 128, WARPS = 4, COPIES = 16;
constexpr int PLAIN = 0, RELU_NORM = 1, GRADIENT = 2;          // what is loaded
constexpr int MEASURED = 0, NORMALISED = 1, ACTIVATION = 2;    // what is stored

#ifndef EMULATED
__device__ __forceinline__ unsigned two(float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ void load_matrices(unsigned (&a)[4], const bf16* row) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(address));
}

__device__ __forceinline__ void load_transposed(unsigned (&a)[4], const bf16* row) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(address));
}

// total (16 × 8) += a (16 × 16) · b (16 × 8)
__device__ __forceinline__ void multiply(float (&total)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(total[0]), "+f"(total[1]), "+f"(total[2]), "+f"(total[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

__device__ __forceinline__ float low(unsigned both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high(unsigned both) { return __uint_as_float(both & 0xffff0000u); }

// One batch norm of a step; sums: COPIES × 4 × 64 channels.
struct Norm {
    const double* sums;
    const float* gamma;
    const float* beta;
    int places;
    double eps;
};

// NaN passes the ReLU, forward and backward.
__device__ __forceinline__ bool is_open(float v) { return !(v <= 0.f); }
__device__ __forceinline__ float relu(float v) { return is_open(v) ? v : 0.f; }

struct Affine {  // z = (y − mean)·scale + shift;  x̂ = (y − mean)·inverse
    float mean, inverse, scale, shift;
};

template <int WHICH>
__device__ __forceinline__ double sum_of(const Norm& norm, int channel) {
    double total = 0;
#pragma unroll
    for (int copy = 0; copy < COPIES; copy++) total += norm.sums[(copy * 4 + WHICH) * 64 + channel];
    return total;
}

__device__ __forceinline__ Affine affine(const Norm& norm, int channel) {
    const double share = 1.0 / norm.places, mean = sum_of<0>(norm, channel) * share;
    const float variance = (float)fmax(sum_of<1>(norm, channel) * share - mean * mean, 0.0);
    const float inverse = 1.f / sqrtf(variance + (float)norm.eps);
    return {(float)mean, inverse, norm.gamma[channel] * inverse, norm.beta[channel]};
}

// The eight channels of a vector; GRADIENT: ∂L/∂y = scale·∂L/∂z + slope·(y − mean) + shift.
template <int LOAD>
struct Change {
    float mean[8], scale[8], shift[8], slope[8];

    __device__ Change(const float (&of_channel)[4][64], int first) {
        if (LOAD == PLAIN) return;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            mean[i] = of_channel[0][first + i];
            scale[i] = of_channel[1][first + i];
            shift[i] = of_channel[2][first + i];
            if (LOAD == GRADIENT) slope[i] = of_channel[3][first + i];
        }
    }

    __device__ __forceinline__ float one(float x, float y, int i) const {
        if (LOAD == RELU_NORM) return relu((x - mean[i]) * scale[i] + shift[i]);
        return x * scale[i] + ((y - mean[i]) * slope[i] + shift[i]);
    }

    __device__ __forceinline__ unsigned pair(unsigned x, unsigned y, int i) const {
        if (LOAD == PLAIN) return x;
        return two(one(low(x), low(y), i), one(high(x), high(y), i + 1));
    }
};

// What Change needs, laid down once for all threads.
template <int LOAD, int CHANNELS>
__device__ void coefficients(float (&of_channel)[4][64], const Norm& norm) {
    const int c = threadIdx.x;
    if (LOAD == PLAIN || c >= CHANNELS) return;
    const Affine a = affine(norm, c);
    of_channel[0][c] = a.mean;
    of_channel[1][c] = a.scale;
    if (LOAD == RELU_NORM) {
        of_channel[2][c] = a.shift;
    } else {
        of_channel[2][c] = -a.scale * (float)sum_of<2>(norm, c) / norm.places;
        of_channel[3][c] = -a.scale * a.inverse * (float)sum_of<3>(norm, c) / norm.places;
    }
}

// ROWS × COLUMNS places of a map from (top, left) on, as PLACES rows of shared memory; zeros where there is
// none. CHANNELS of the map's ALL are loaded, from `first_channel` on; a map spread out by SPREAD has values at
// every SPREAD-th place only. All that fits is fetched before any of it is put down, so that a thread waits once.
template <int LOAD, int CHANNELS, int ALL, int HEIGHT, int WIDE, int SPREAD, int ROWS, int COLUMNS, int PLACES>
struct Tile {
    static constexpr int PADDED = (CHANNELS + 15) / 16 * 16, PITCH = PADDED + 8, VECTORS = PADDED / 8;
    static constexpr int STEP = THREADS / VECTORS, TURNS = (PLACES + STEP - 1) / STEP, HELD = TURNS < 8 ? TURNS : 8;
    const bf16 *x, *y;
    const int first_channel, image, top, left, vector = threadIdx.x % VECTORS, first = threadIdx.x / VECTORS;
    uint4 v[HELD], w[LOAD == GRADIENT ? HELD : 1];
    unsigned inside;

    __device__ Tile(const bf16* x, const bf16* y, int first_channel, int image, int top, int left)
        : x(x), y(y), first_channel(first_channel), image(image), top(top), left(left) {}

    __device__ __forceinline__ void fetch(int turn) {
        inside = 0;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            const int place = first + (turn + i) * STEP, row = top + place / COLUMNS, column = left + place % COLUMNS;
            const bool there = place < ROWS * COLUMNS && row >= 0 && column >= 0 && row % SPREAD == 0 &&
                               column % SPREAD == 0 && row / SPREAD < HEIGHT && column / SPREAD < WIDE;
            v[i] = {0, 0, 0, 0};
            if (!there) continue;
            inside |= 1u << i;
            const long long at = (((long long)image * HEIGHT + row / SPREAD) * WIDE + column / SPREAD) * ALL +
                                 first_channel + vector * 8;
            if constexpr (CHANNELS % 16 == 0) {
                v[i] = *(const uint4*)(x + at);
                if (LOAD == GRADIENT) w[i] = *(const uint4*)(y + at);
            } else {
                unsigned values[8];
#pragma unroll
                for (int c = 0; c < 8; c++) values[c] = vector * 8 + c < CHANNELS ? x[at + c] : 0;
                v[i] = {values[0] | values[1] << 16, values[2] | values[3] << 16, values[4] | values[5] << 16,
                        values[6] | values[7] << 16};
            }
        }
    }

    __device__ __forceinline__ void put(int turn, bf16* tile, const float (&of_channel)[4][64]) {
        const Change<LOAD> change(of_channel, first_channel + vector * 8);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            const int place = first + (turn + i) * STEP;
            const uint4 o = w[LOAD == GRADIENT ? i : 0];
            if (LOAD != PLAIN && (inside >> i & 1))
                v[i] = {change.pair(v[i].x, o.x, 0), change.pair(v[i].y, o.y, 2), change.pair(v[i].z, o.z, 4),
                        change.pair(v[i].w, o.w, 6)};
            if (place < PLACES) *(uint4*)(tile + place * PITCH + vector * 8) = v[i];
        }
    }

    // The first HELD turns are fetched already.
    __device__ __forceinline__ void finish(bf16* tile, const float (&of_channel)[4][64]) {
        put(0, tile, of_channel);
        for (int turn = HELD; turn < TURNS; turn += HELD) {
            fetch(turn);
            put(turn, tile, of_channel);
        }
    }
};

// Adds a program's two sums per channel to those of all programs. A thread has those of the channels
// 8n + 2(lane % 4) and the next one; the lanes of equal lane % 4 and the warps have other places.
template <int CHANNELS>
__device__ void add_sums(double* sums, float (&first)[CHANNELS / 4], float (&second)[CHANNELS / 4]) {
    __shared__ float of_warp[WARPS][2][CHANNELS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < CHANNELS / 4; i++) {
        for (int step = 4; step < 32; step *= 2) {
            first[i] += __shfl_xor_sync(0xffffffffu, first[i], step);
            second[i] += __shfl_xor_sync(0xffffffffu, second[i], step);
        }
        if (lane < 4) {
            const int channel = i / 2 * 8 + lane * 2 + i % 2;
            of_warp[warp][0][channel] = first[i];
            of_warp[warp][1][channel] = second[i];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * CHANNELS; i += THREADS) {
        const int which = i / CHANNELS, channel = i % CHANNELS;
        double total = 0;
        for (int w = 0; w < WARPS; w++) total += of_warp[w][which][channel];
        atomicAdd(sums + (blockIdx.x % COPIES * 4 + which) * 64 + channel, total);
    }
}

// y[p] = Σ_t u[STRIDE·p + t]·W_t, with its two sums; or, with u = ∂L/∂y spread out and the weight turned
// round, the gradient by the input, G[p] = Σ_t u[p + t]·W_{−t}ᵀ (+ what comes back through the shortcut),
// masked by the ReLU before the input, with the two sums of the batch norm before that.
template <int LOAD, int STORE, int IN, int OUT, int HEIGHT, int WIDE, int OUT_HEIGHT, int OUT_WIDE, int STRIDE,
          int SPREAD, int TILE_ROWS>
__device__ void convolution(const bf16* __restrict__ x, const bf16* __restrict__ y, Norm norm,
                            const uint2* __restrict__ weight, bf16* __restrict__ result, double* result_sums,
                            const bf16* __restrict__ source, Norm source_norm, const bf16* __restrict__ activation,
                            const bf16* __restrict__ shortcut) {
    constexpr int DEPTH = (IN + 15) / 16 * 16, PITCH = DEPTH + 8;
    constexpr int ROWS = (TILE_ROWS - 1) * STRIDE + 3, COLUMNS = (OUT_WIDE - 1) * STRIDE + 3;
    constexpr int PLACES = TILE_ROWS * OUT_WIDE, TILES = (PLACES + 16 * WARPS - 1) / (16 * WARPS);
    alignas(16) __shared__ bf16 tile[ROWS * COLUMNS * PITCH];
    __shared__ float of_channel[4][64], of_source[4][64];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int image = blockIdx.x / (OUT_HEIGHT / TILE_ROWS);
    const int first_row = blockIdx.x % (OUT_HEIGHT / TILE_ROWS) * TILE_ROWS;

    Tile<LOAD, IN, IN, HEIGHT, WIDE, SPREAD, ROWS, COLUMNS, ROWS * COLUMNS> input(
        x, y, 0, image, first_row * STRIDE - 1, -1);
    input.fetch(0);
    coefficients<LOAD, IN>(of_channel, norm);
    if (STORE != MEASURED && threadIdx.x >= 64 && threadIdx.x < 64 + OUT) {
        const int c = threadIdx.x - 64;
        const Affine a = affine(source_norm, c);
        of_source[0][c] = a.mean;
        of_source[1][c] = a.inverse;
        of_source[2][c] = a.scale;
        of_source[3][c] = a.shift;
    }
    __syncthreads();
    input.finish(tile, of_channel);
    __syncthreads();

    const bf16* rows[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const int place = min((warp * TILES + t) * 16 + lane % 16, PLACES - 1);
        rows[t] = tile + ((place / OUT_WIDE) * COLUMNS + place % OUT_WIDE) * STRIDE * PITCH + lane / 16 * 8;
    }
    float total[TILES][OUT / 8][4] = {};
#pragma unroll
    for (int tap = 0; tap < 9; tap++)
#pragma unroll
        for (int depth = 0; depth < DEPTH; depth += 16) {
            uint2 b[OUT / 8];
#pragma unroll
            for (int n = 0; n < OUT / 8; n++) b[n] = weight[((tap * DEPTH + depth) / 16 * (OUT / 8) + n) * 32 + lane];
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                unsigned a[4];
                load_matrices(a, rows[t] + (tap / 3 * COLUMNS + tap % 3) * PITCH + depth);
#pragma unroll
                for (int n = 0; n < OUT / 8; n++) multiply(total[t][n], a, b[n].x, b[n].y);
            }
        }

    float first[OUT / 4] = {}, second[OUT / 4] = {};
    const long long start = ((long long)image * OUT_HEIGHT + first_row) * OUT_WIDE;
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int place = (warp * TILES + t) * 16 + half * 8 + lane / 4;
            if (PLACES % (16 * WARPS) != 0 && place >= PLACES) continue;
            const int row = first_row + place / OUT_WIDE, column = place % OUT_WIDE;
            const bool through = STORE == ACTIVATION && row % SPREAD == 0 && column % SPREAD == 0;
            const long long from =
                (((long long)image * HEIGHT + row / SPREAD) * WIDE + column / SPREAD) * IN + (IN - OUT) / 2;
#pragma unroll
            for (int n = 0; n < OUT / 8; n++) {
                const int channel = n * 8 + lane % 4 * 2;
                const long long at = (start + place) * OUT + channel;
                float v = total[t][n][2 * half], w = total[t][n][2 * half + 1];
                unsigned stored;
                if (STORE == MEASURED) {
                    stored = two(v, w);
                    first[2 * n] += low(stored);
                    first[2 * n + 1] += high(stored);
                    second[2 * n] += low(stored) * low(stored);
                    second[2 * n + 1] += high(stored) * high(stored);
                } else {
                    if (through) {
                        const unsigned s = *(const unsigned*)(shortcut + from + channel);
                        v += low(s);
                        w += high(s);
                    }
                    const unsigned before = *(const unsigned*)(source + at);
                    const float p = low(before) - of_source[0][channel];
                    const float q = high(before) - of_source[0][channel + 1];
                    bool open_p, open_q;
                    if (STORE == NORMALISED) {
                        open_p = is_open(p * of_source[2][channel] + of_source[3][channel]);
                        open_q = is_open(q * of_source[2][channel + 1] + of_source[3][channel + 1]);
                    } else {
                        const unsigned a = *(const unsigned*)(activation + at);
                        open_p = is_open(low(a));
                        open_q = is_open(high(a));
                    }
                    stored = two(open_p ? v : 0.f, open_q ? w : 0.f);
                    first[2 * n] += low(stored);
                    first[2 * n + 1] += high(stored);
                    second[2 * n] += low(stored) * (p * of_source[1][channel]);
                    second[2 * n + 1] += high(stored) * (q * of_source[1][channel + 1]);
                }
                *(unsigned*)(result + at) = stored;
            }
        }
    add_sums<OUT>(result_sums + (STORE == MEASURED ? 0 : 128), first, second);
}

// ∂L/∂W_t = Σ_p u[STRIDE·p + t]ᵀ·∂L/∂y[p], as partial sums (gridDim.x, 9, IN, OUT). A program has BLOCK of the
// output channels and every gridDim.x-th tile; its warps share the input channels, the output channels, and then
// the places.
template <int LOAD, int IN, int OUT, int BLOCK, int HEIGHT, int WIDE, int OUT_HEIGHT, int OUT_WIDE, int STRIDE,
          int TILE_ROWS>
__device__ void weight_gradient(const bf16* __restrict__ x, Norm x_norm, const bf16* __restrict__ gradient,
                                const bf16* __restrict__ y, Norm norm, float* partials, int images) {
    constexpr int DEPTH = (IN + 15) / 16 * 16, PITCH = DEPTH + 8, OUT_PITCH = BLOCK + 8;
    constexpr int ROWS = (TILE_ROWS - 1) * STRIDE + 3, COLUMNS = (OUT_WIDE - 1) * STRIDE + 3;
    constexpr int PLACES = TILE_ROWS * OUT_WIDE, STEPS = (PLACES + 15) / 16;
    constexpr int OF_IN = DEPTH / 16, OF_OUT = BLOCK / 16, OF_PLACES = WARPS / (OF_IN * OF_OUT);
    static_assert(OF_PLACES * OF_IN * OF_OUT == WARPS, "the warps must share the work evenly");
    constexpr int INPUT = ROWS * COLUMNS * PITCH, OUTPUT = STEPS * 16 * OUT_PITCH;
    constexpr int SUMS = OF_PLACES > 1 ? 9 * DEPTH * BLOCK * 2 : 0;  // in units of two bytes
    alignas(16) __shared__ bf16 memory[INPUT + OUTPUT > SUMS ? INPUT + OUTPUT : SUMS];
    __shared__ float of_input[4][64], of_output[4][64];
    bf16 *input = memory, *output = memory + INPUT;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first_out = blockIdx.y * BLOCK;
    const int in = warp % OF_IN * 16, out = warp / OF_IN % OF_OUT * 16, part = warp / (OF_IN * OF_OUT);

    coefficients<LOAD, IN>(of_input, x_norm);
    coefficients<GRADIENT, OUT>(of_output, norm);
    float total[9][2][4] = {};
    for (int tile = blockIdx.x; tile < images * (OUT_HEIGHT / TILE_ROWS); tile += gridDim.x) {
        const int image = tile / (OUT_HEIGHT / TILE_ROWS), first_row = tile % (OUT_HEIGHT / TILE_ROWS) * TILE_ROWS;
        Tile<LOAD, IN, IN, HEIGHT, WIDE, 1, ROWS, COLUMNS, ROWS * COLUMNS> from(
            x, x, 0, image, first_row * STRIDE - 1, -1);
        Tile<GRADIENT, BLOCK, OUT, OUT_HEIGHT, OUT_WIDE, 1, TILE_ROWS, OUT_WIDE, STEPS * 16> to(
            gradient, y, first_out, image, first_row, 0);
        from.fetch(0);
        to.fetch(0);
        __syncthreads();
        from.finish(input, of_input);
        to.finish(output, of_output);
        __syncthreads();
        for (int step = part; step < STEPS; step += OF_PLACES) {
            unsigned b[4];
            load_transposed(b, output + (step * 16 + lane % 16) * OUT_PITCH + out + lane / 16 * 8);
            const int place = min(step * 16 + lane % 8 + lane / 16 * 8, PLACES - 1);
            const bf16* row = input + (place / OUT_WIDE * COLUMNS + place % OUT_WIDE) * STRIDE * PITCH + in +
                              lane / 8 % 2 * 8;
#pragma unroll
            for (int tap = 0; tap < 9; tap++) {
                unsigned a[4];
                load_transposed(a, row + (tap / 3 * COLUMNS + tap % 3) * PITCH);
                multiply(total[tap][0], a, b[0], b[1]);
                multiply(total[tap][1], a, b[2], b[3]);
            }
        }
    }
    __syncthreads();
    float *sums = (float*)memory, *result = partials + (long long)blockIdx.x * 9 * IN * OUT + first_out;
    for (int turn = 0; turn < OF_PLACES; turn++) {
        if (part == turn)
#pragma unroll
            for (int tap = 0; tap < 9; tap++)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const int m = in + lane / 4 + i / 2 % 2 * 8, n = out + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    const float value = total[tap][i / 4][i % 4];
                    if (OF_PLACES == 1) {
                        if (m < IN) result[(tap * IN + m) * OUT + n] = value;
                    } else {
                        float& sum = sums[(tap * DEPTH + m) * BLOCK + n];
                        sum = turn ? sum + value : value;
                    }
                }
        __syncthreads();
    }
    if (OF_PLACES > 1)
        for (int i = threadIdx.x; i < 9 * DEPTH * BLOCK; i += THREADS) {
            const int n = i % BLOCK, m = i / BLOCK % DEPTH, tap = i / (BLOCK * DEPTH);
            if (m < IN) result[(tap * IN + m) * OUT + n] = sums[i];
        }
}

// The partial sums added up, in the same order every time, as a weight (OUT, IN, 3, 3).
template <int IN, int OUT>
__device__ void weight_sum(const float* __restrict__ partials, int programs, float* __restrict__ result) {
    constexpr int ELEMENTS = 8, GROUPS = THREADS / ELEMENTS, ALL = 9 * IN * OUT;
    __shared__ float of_group[GROUPS][ELEMENTS];
    const int element = threadIdx.x % ELEMENTS, group = threadIdx.x / ELEMENTS;
    const int place = blockIdx.x * ELEMENTS + element;
    float total = 0;
#pragma unroll 8
    for (int program = group; program < programs; program += GROUPS)
        total += partials[(long long)program * ALL + place];
    of_group[group][element] = total;
    __syncthreads();
    if (group) return;
    for (int g = 1; g < GROUPS; g++) total += of_group[g][element];
    const int out = place % OUT, in = place / OUT % IN, tap = place / (OUT * IN);
    result[(out * IN + in) * 9 + tap] = total;
}

// The end of a block, a = max(z + shortcut(x), 0): the shortcut takes every STRIDE-th place and puts zeros
// around the channels. IN = 0: without a shortcut.
template <int IN, int CHANNELS, int HEIGHT, int WIDE, int IN_HEIGHT, int IN_WIDE, int STRIDE>
__device__ void block_end(const bf16* __restrict__ y, Norm norm, const bf16* __restrict__ x,
                          bf16* __restrict__ activation, int images) {
    constexpr int VECTORS = CHANNELS / 8, AROUND = (CHANNELS - IN) / 2;
    __shared__ float of_channel[4][64];
    coefficients<RELU_NORM, CHANNELS>(of_channel, norm);
    __syncthreads();
    const int vector = threadIdx.x % VECTORS, from_channel = vector * 8 - AROUND;
    const Change<RELU_NORM> change(of_channel, vector * 8);
    const bool has_shortcut = IN > 0 && from_channel >= 0 && from_channel < IN;
    const int first = (blockIdx.x * THREADS + threadIdx.x) / VECTORS, step = gridDim.x * THREADS / VECTORS;
    for (int place = first; place < images * HEIGHT * WIDE; place += step) {
        const uint4 v = *(const uint4*)(y + (long long)place * CHANNELS + vector * 8);
        uint4 s = {0, 0, 0, 0};
        if (has_shortcut) {
            const int column = place % WIDE * STRIDE, row = place / WIDE % HEIGHT * STRIDE;
            const int image = place / (HEIGHT * WIDE);
            s = *(const uint4*)(x + (((long long)image * IN_HEIGHT + row) * IN_WIDE + column) * IN + from_channel);
        }
        const unsigned from[4] = {v.x, v.y, v.z, v.w}, beside[4] = {s.x, s.y, s.z, s.w};
        unsigned to[4];
        for (int i = 0; i < 4; i++) {
            const float p = (low(from[i]) - change.mean[2 * i]) * change.scale[2 * i] + change.shift[2 * i];
            const float q =
                (high(from[i]) - change.mean[2 * i + 1]) * change.scale[2 * i + 1] + change.shift[2 * i + 1];
            to[i] = two(relu(p + low(beside[i])), relu(q + high(beside[i])));
        }
        *(uint4*)(activation + (long long)place * CHANNELS + vector * 8) = {to[0], to[1], to[2], to[3]};
    }
}

// Where the backward pass starts: ∂L/∂z = ∂L/∂a where a > 0, with the two sums of z's batch norm. A thread has
// the two channels of its lane, as `add_sums` wants them, CHANNELS/8 times.
template <int CHANNELS>
__device__ void backward_start(const bf16* __restrict__ gradient, const bf16* __restrict__ activation,
                               const bf16* __restrict__ y, Norm norm, bf16* __restrict__ result, double* sums,
                               int places) {
    __shared__ float of_channel[2][64];
    if (threadIdx.x < CHANNELS) {
        const Affine a = affine(norm, threadIdx.x);
        of_channel[0][threadIdx.x] = a.mean;
        of_channel[1][threadIdx.x] = a.inverse;
    }
    __syncthreads();
    const int lane = threadIdx.x % 32;
    float first[CHANNELS / 4] = {}, second[CHANNELS / 4] = {};
    for (int place = (blockIdx.x * THREADS + threadIdx.x) / 4; place < places; place += gridDim.x * THREADS / 4)
#pragma unroll
        for (int n = 0; n < CHANNELS / 8; n++) {
            const int channel = n * 8 + lane % 4 * 2;
            const long long at = (long long)place * CHANNELS + channel;
            const unsigned g = *(const unsigned*)(gradient + at), a = *(const unsigned*)(activation + at);
            const unsigned before = *(const unsigned*)(y + at);
            const unsigned stored = two(is_open(low(a)) ? low(g) : 0.f, is_open(high(a)) ? high(g) : 0.f);
            *(unsigned*)(result + at) = stored;
            first[2 * n] += low(stored);
            first[2 * n + 1] += high(stored);
            second[2 * n] += low(stored) * ((low(before) - of_channel[0][channel]) * of_channel[1][channel]);
            second[2 * n + 1] +=
                high(stored) * ((high(before) - of_channel[0][channel + 1]) * of_channel[1][channel + 1]);
        }
    add_sums<CHANNELS>(sums + 128, first, second);
}

#define NORM(n) const double *n##_sums, const float *n##_gamma, const float *n##_beta, int n##_places, double n##_eps
#define GIVEN(n) Norm{n##_sums, n##_gamma, n##_beta, n##_places, n##_eps}
#define KERNEL(name, each) extern "C" __global__ void __launch_bounds__(THREADS, each) name  // `each` a processor

#define CONVOLUTION(name, ...)                                                                                     \
    KERNEL(name, 4)(const bf16* x, const bf16* y, NORM(norm), const uint2* weight, bf16* result,                   \
                    double* result_sums, const bf16* source, NORM(source), const bf16* activation,                 \
                    const bf16* shortcut) {                                                                        \
        convolution<__VA_ARGS__>(x, y, GIVEN(norm), weight, result, result_sums, source, GIVEN(source),            \
                                 activation, shortcut);                                                            \
    }
#define WEIGHT_GRADIENT(name, ...)                                                                                 \
    KERNEL(name, 3)(const bf16* x, NORM(x), const bf16* gradient, const bf16* y, NORM(norm), float* partials,      \
                    int images) {                                                                                  \
        weight_gradient<__VA_ARGS__>(x, GIVEN(x), gradient, y, GIVEN(norm), partials, images);                     \
    }
#define WEIGHT_SUM(name, ...)                                                                                      \
    KERNEL(name, 4)(const float* partials, int programs, float* result) {                                          \
        weight_sum<__VA_ARGS__>(partials, programs, result);                                                       \
    }
#define BLOCK_END(name, ...)                                                                                       \
    KERNEL(name, 4)(const bf16* y, NORM(norm), const bf16* x, bf16* activation, int images) {                      \
        block_end<__VA_ARGS__>(y, GIVEN(norm), x, activation, images);                                             \
    }
#define BACKWARD_START(name, ...)                                                                                  \
    KERNEL(name, 4)(const bf16* gradient, const bf16* activation, const bf16* y, NORM(norm), bf16* result,         \
                    double* sums, int places) {                                                                    \
        backward_start<__VA_ARGS__>(gradient, activation, y, GIVEN(norm), result, sums, places);                   \
    }
