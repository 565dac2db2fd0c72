// Vectors of floats as wide as the instruction set allows, loops over tiles of them, and memory they like.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace {

#if defined(__AVX512F__)
constexpr int WIDTH = 16;
constexpr bool MANY_REGISTERS = true;
#elif defined(__AVX2__)
constexpr int WIDTH = 8;
constexpr bool MANY_REGISTERS = false;
#else
constexpr int WIDTH = 4;
#if defined(__aarch64__)
constexpr bool MANY_REGISTERS = true;
#else
constexpr bool MANY_REGISTERS = false;
#endif
#endif

#define UNROLL _Pragma("GCC unroll 32")

typedef float Vec __attribute__((vector_size(WIDTH * sizeof(float)), may_alias));
typedef int32_t Mask __attribute__((vector_size(WIDTH * sizeof(float)), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }
inline Vec broadcast(float f) { return f - Vec{}; }

// [a0+a1, a2+a3, ..., b0+b1, b2+b3, ...]
template <int... I>
inline Vec add_pairs(Vec a, Vec b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (2 * I)...) + __builtin_shufflevector(a, b, (2 * I + 1)...);
}

// out = [the sum over the lanes of acc[0], of acc[1], ...]. Each round of pairwise additions leaves half as
// many vectors and half as many terms per sum.
template <int N, int TERMS = WIDTH>
inline void lane_sums(const Vec* acc, Vec* out) {
    if constexpr (TERMS == 1) {
        UNROLL for (int n = 0; n < N; ++n) out[n] = acc[n];
    } else {
        constexpr int HALF = (N + 1) / 2;
        Vec half[HALF];
        UNROLL for (int n = 0; n < HALF; ++n)
            half[n] = add_pairs(acc[2 * n], 2 * n + 1 < N ? acc[2 * n + 1] : Vec{},
                                std::make_integer_sequence<int, WIDTH>{});
        lane_sums<HALF, TERMS / 2>(half, out);
    }
}

// Call f with n as a compile-time constant, 1 <= n <= MAX.
template <int MAX, class F>
inline void as_constant(int n, F&& f) {
    if (n >= MAX) {
        f(std::integral_constant<int, MAX>{});
    } else if constexpr (MAX > 1) {
        as_constant<MAX - 1>(n, f);
    }
}

// Cut 0, ..., n - 1 into pieces of at most MAX, as equal as can be: f(start, size).
template <int MAX, class F>
inline void pieces(int n, F&& f) {
    const int count = (n + MAX - 1) / MAX;
    for (int p = 0; p < count; ++p) {
        const int start = n * p / count, end = n * (p + 1) / count;
        as_constant<MAX>(end - start, [&](auto size) { f(start, size); });
    }
}

// Floats at an address that vectors and cache lines like, all zero.
class Buffer {
  public:
    explicit Buffer(size_t size = 0)
        : data_(static_cast<float*>(::operator new(size * sizeof(float), std::align_val_t{64}))) {
        std::fill_n(data_.get(), size, 0.0f);
    }
    float* get() const { return data_.get(); }

  private:
    struct Free {
        void operator()(float* p) const { ::operator delete(p, std::align_val_t{64}); }
    };
    std::unique_ptr<float, Free> data_;
};

}  // namespace
