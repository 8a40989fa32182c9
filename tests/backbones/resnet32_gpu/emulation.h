// A GPU as far as residual.cu needs one: the threads of a program are fibers that take turns, and the
// instructions of a warp exchange what its threads hold.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#define EMULATED
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

using std::max;
using std::min;
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct Place { int x = 0, y = 0; };
static Place threadIdx, blockIdx, gridDim;

static const int COUNT = 128;
static jmp_buf main_place, places[COUNT];  // jumps, unlike swapcontext, do not ask the operating system
static bool done[COUNT];
static std::vector<std::vector<char>> stacks;
static void (*body)(void*);
static void* body_arguments;

[[gnu::noinline]] inline void yield() {
    const int me = threadIdx.x;
    if (!_setjmp(places[me])) _longjmp(main_place, 1);
}
[[gnu::noinline]] inline void resume(int thread) {
    threadIdx.x = thread;
    if (!_setjmp(main_place)) _longjmp(places[thread], 1);
}
inline void fiber() {
    for (;;) {
        yield();
        body(body_arguments);
        done[threadIdx.x] = true;
    }
}
[[gnu::noinline]] inline void start(int thread, char* stack, std::size_t size) {
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = size;
    makecontext(&context, fiber, 0);
    threadIdx.x = thread;
    if (!_setjmp(main_place)) setcontext(&context);
}
inline void run_block() {
    while (stacks.size() < COUNT) {
        stacks.emplace_back(1 << 17);
        start(stacks.size() - 1, stacks.back().data(), stacks.back().size());
    }
    for (bool& one : done) one = false;
    for (bool left = true; left;) {
        left = false;
        for (int turn = 0; turn < COUNT; turn++) {
            const int thread = blockIdx.x % 2 ? COUNT - 1 - turn : turn;  // a missing barrier shows in one of them
            if (done[thread]) continue;
            resume(thread);
            left = true;
        }
    }
}

struct Barrier {
    int size, waiting = 0;
    unsigned round = 0;
    void wait() {
        const unsigned mine = round;
        if (++waiting == size) {
            waiting = 0;
            round++;
        } else
            while (round == mine) yield();
    }
};
static Barrier block_barrier{COUNT}, warp_barriers[COUNT / 32]{{32}, {32}, {32}, {32}};
inline void __syncthreads() { block_barrier.wait(); }
inline Barrier& warp() { return warp_barriers[threadIdx.x / 32]; }

// What every thread of the warp holds.
template <class T>
struct Exchange {
    T of[COUNT];
    const T* operator()(const T& mine) {
        of[threadIdx.x] = mine;
        warp().wait();
        return of + threadIdx.x / 32 * 32;
    }
};

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    static Exchange<T> exchange;
    const T result = exchange(value)[threadIdx.x % 32 ^ mask];
    warp().wait();
    return result;
}
template <class T>
void atomicAdd(T* at, T value) { *at += value; }

inline unsigned rounded(float value) {
    const unsigned bits = std::bit_cast<unsigned>(value);
    if (value != value) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline unsigned two(float low, float high) { return rounded(low) | rounded(high) << 16; }

using Row = const unsigned short*;
template <bool TRANSPOSED>
void matrices(unsigned (&a)[4], Row row) {
    static Exchange<Row> exchange;
    const Row* rows = exchange(row);
    const int lane = threadIdx.x % 32, pair = lane % 4 * 2, place = lane / 4;
    for (int i = 0; i < 4; i++) {
        const unsigned first = TRANSPOSED ? rows[i * 8 + pair][place] : rows[i * 8 + place][pair];
        const unsigned second = TRANSPOSED ? rows[i * 8 + pair + 1][place] : rows[i * 8 + place][pair + 1];
        a[i] = first | second << 16;
    }
    warp().wait();
}
inline void load_matrices(unsigned (&a)[4], Row row) { matrices<false>(a, row); }
inline void load_transposed(unsigned (&a)[4], Row row) { matrices<true>(a, row); }

inline float half(unsigned both, int which) { return __uint_as_float(which ? both & 0xffff0000u : both << 16); }
inline void multiply(float (&total)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    struct Held { unsigned a[4], b[2]; };
    static Exchange<Held> exchange;
    const Held* held = exchange({{a[0], a[1], a[2], a[3]}, {b0, b1}});
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++)
            total[i] += half(held[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2) *
                        half(held[column * 4 + k % 8 / 2].b[k / 8], k % 2);
    }
    warp().wait();
}

template <class... A>
void emulate(void (*kernel)(A...), int columns, int rows, void** given) {
    struct Call {
        void (*kernel)(A...);
        std::tuple<A...> arguments;
    };
    Call call{kernel, [&]<std::size_t... I>(std::index_sequence<I...>) {
                  return std::tuple<A...>{*(A*)given[I]...};
              }(std::index_sequence_for<A...>{})};
    body = [](void* p) { std::apply(((Call*)p)->kernel, ((Call*)p)->arguments); };
    body_arguments = &call;
    gridDim = {columns, rows};
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++) {
            blockIdx = {x, y};
            run_block();
        }
}
#define EMULATE(name) \
    extern "C" void run_##name(int columns, int rows, void** given) { emulate(name, columns, rows, given); }
