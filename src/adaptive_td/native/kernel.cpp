// The native engine: the one update of `rows.py` for dense ReLU networks with Adam, on CPU threads.
//
//     T = r + c V(s');  y = T where lower < T < upper, else the fallback;  loss = mean (y - V(s))²
//
// What makes it fast:
// - Activations are feature-major, `x[feature][lane]`: vectors run along the batch, and a layer of 50 units needs
//   no padding. Forward pass, input gradient and weight gradient are register-blocked loops of one form.
// - The batch is worked off in chunks of at most 256 lanes, whose activations stay in the L2 cache.
// - All columns of a transition lie in one half of a cache line (`Row`), fetched ahead of its use.
// - Parameters, gradients and moments are flat vectors, so that Adam is one loop.
//
// The same bits for any number of threads: chunks are dealt to slices, and slices to threads. The slices and
// the order in which their gradients are added depend on the batch size alone.
//
// `build.py` compiles this file once per instruction set; the widest one the machine has is loaded.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace {

// ---------------------------------------------------------------------------------------------- vectors

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

// ------------------------------------------------------------------------------------------ tiled loops

// More lanes in a chunk are fewer sums across vectors in `weight_gradient`; fewer leave more chunks to threads.
constexpr int LANES = 256;
constexpr int STRIDE = LANES + 16;  // between features; not a power of two, which would crowd few cache sets
constexpr int MAX_SLICES = 8;

// Tiles of sums held in registers: rows x vectors of lanes in products, inputs x outputs in weight gradients.
constexpr int ROWS = 6;
constexpr int VECTORS = MANY_REGISTERS ? 4 : 2;
constexpr int GRADIENT_INPUTS = MANY_REGISTERS ? 6 : 4;
constexpr int GRADIENT_OUTPUTS = MANY_REGISTERS ? 4 : 3;
constexpr int GRADIENT_PANEL = 16;  // outputs whose deltas stay in L1 while all inputs pass by

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

// A matrix read through its two strides, so that one loop serves W and its transpose.
struct Matrix {
    const float* at;
    ptrdiff_t row, column;
};

// y[m][lane] = finish(start(m) + Σ_k a[m, k] x[k][lane]) for all rows m and `vectors` vectors of lanes.
template <class Start, class Finish>
inline void product(Matrix a, int rows, int depth, const float* x, float* y, int vectors, Start start,
                    Finish finish) {
    pieces<VECTORS>(vectors, [&](int v0, auto width) {
        constexpr int C = decltype(width)::value;
        pieces<ROWS>(rows, [&, v0](int m0, auto height) {
            constexpr int R = decltype(height)::value;
            const ptrdiff_t lane = ptrdiff_t(v0) * WIDTH;
            const float* from = a.at + m0 * a.row;
            const float* in = x + lane;
            Vec sum[R][C];
            UNROLL for (int r = 0; r < R; ++r)
                UNROLL for (int c = 0; c < C; ++c) sum[r][c] = broadcast(start(m0 + r));
            for (int k = 0; k < depth; ++k, in += STRIDE, from += a.column) {
                UNROLL for (int r = 0; r < R; ++r) {
                    const Vec w = broadcast(from[r * a.row]);
                    UNROLL for (int c = 0; c < C; ++c) sum[r][c] += w * load(in + c * WIDTH);
                }
            }
            UNROLL for (int r = 0; r < R; ++r)
                UNROLL for (int c = 0; c < C; ++c) {
                    const ptrdiff_t at = ptrdiff_t(m0 + r) * STRIDE + lane + c * WIDTH;
                    store(y + at, finish(at, sum[r][c]));
                }
        });
    });
}

// gradient[i][o] += Σ_lane x[i][lane] d[o][lane]
inline void weight_gradient(const float* x, int inputs, const float* d, int outputs, int vectors,
                            float* gradient) {
    for (int panel = 0; panel < outputs; panel += GRADIENT_PANEL) {
        const int panel_size = std::min(GRADIENT_PANEL, outputs - panel);
        pieces<GRADIENT_INPUTS>(inputs, [&](int i0, auto height) {
            constexpr int R = decltype(height)::value;
            pieces<GRADIENT_OUTPUTS>(panel_size, [&, i0](int o0, auto width) {
                constexpr int C = decltype(width)::value;
                const float* left = x + ptrdiff_t(i0) * STRIDE;
                const float* right = d + ptrdiff_t(panel + o0) * STRIDE;
                Vec sum[R * C] = {};
                for (int v = 0; v < vectors; ++v, left += WIDTH, right += WIDTH)
                    UNROLL for (int r = 0; r < R; ++r)
                        UNROLL for (int c = 0; c < C; ++c)
                            sum[r * C + c] += load(left + r * STRIDE) * load(right + c * STRIDE);
                Vec totals[(R * C + WIDTH - 1) / WIDTH];
                lane_sums<R * C>(sum, totals);
                const float* total = reinterpret_cast<const float*>(totals);
                for (int r = 0; r < R; ++r)
                    for (int c = 0; c < C; ++c)
                        gradient[ptrdiff_t(i0 + r) * outputs + panel + o0 + c] += total[r * C + c];
            });
        });
    }
}

// ------------------------------------------------------------------------------------------ what is given

enum Fallback : int32_t { MIDPOINT, ENDPOINT, RETURN };

}  // namespace

extern "C" {

// What a transition teaches: T = reward + discount V(next_state) for V(state), kept between the bounds.
struct Row {
    int32_t state, next_state;
    float reward, discount, lower, upper, fallback;
    int32_t unused;  // two rows are one cache line
};

// One network, its log, and how it is updated; `library.py` has the same structure.
struct Problem {
    // The network: layer l maps sizes[l] to sizes[l + 1] numbers; sizes[layers] = 1. Parameters are laid end
    // to end, each layer's weights as [input][output] and then its biases; padded with zeros to `padded`.
    const int32_t* sizes;
    int32_t layers;
    int32_t padded;
    float* parameters;
    float* first_moment;
    float* second_moment;
    // The log: states of bytes or floats, and rows by transition. Draws are null where every row may be drawn.
    const void* states;
    const float* center;
    const float* half;
    const Row* rows;
    const int32_t* draws;
    uint32_t count;
    uint32_t seed[2];
    int32_t states_are_bytes;
    // The update.
    int32_t batch;
    int32_t whole;
    int32_t bootstraps;
    int32_t tests_value;
    int32_t fallback;
    float learning_rate;
    float epsilon;
    int64_t steps;
    // How it goes: sums of loss, share below, share above, and count for each hundredth of the steps.
    float* history;
    int64_t diverged_at;
};

}  // extern "C"

namespace {

// ---------------------------------------------------------------------------------------- random indices

inline uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

// As `counter_bits` in rows.py: a function of (seed, step, lane) alone.
inline uint32_t counter_bits(const uint32_t seed[2], uint32_t stream, uint32_t lane) {
    return mix(lane ^ stream) + mix(lane * 0x9E3779B9u + seed[1]);
}

inline uint32_t stream_of(const uint32_t seed[2], int64_t step) {
    return mix(seed[0] ^ mix(seed[1] + mix(uint32_t(step))));
}

// ------------------------------------------------------------------------------------------------ memory

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

// What one thread needs for a chunk: the activations of every layer (and a row of ones after each, whose
// "weights" are the biases), two buffers for deltas, and the columns of its rows.
struct Scratch {
    std::vector<Buffer> activations;
    Buffer delta[2], value{LANES}, target{LANES}, discount{LANES}, lower{LANES}, upper{LANES}, other{LANES};
    int32_t state[LANES], next_state[LANES];

    explicit Scratch(const Problem& p) {
        int widest = 1;
        for (int l = 0; l < p.layers; ++l) {
            activations.emplace_back(size_t(p.sizes[l] + 1) * STRIDE);
            std::fill_n(activations[l].get() + size_t(p.sizes[l]) * STRIDE, STRIDE, 1.0f);
            widest = std::max(widest, p.sizes[l + 1]);
        }
        for (Buffer& d : delta) d = Buffer(size_t(widest) * STRIDE);
    }
};

struct Sums {
    float loss = 0, below = 0, above = 0;

    void operator+=(const Sums& other) {
        loss += other.loss, below += other.below, above += other.above;
    }
};

// ------------------------------------------------------------------------------------------- one chunk

// x[feature][lane] = (state - center) / half, for these states of the log.
template <class Number>
void gather(const Problem& p, const int32_t* state, int lanes, float* x) {
    const Number* states = static_cast<const Number*>(p.states);
    const int features = p.sizes[0];
    constexpr int TILE = 16;
    for (int f0 = 0; f0 < features; f0 += TILE) {
        const int size = std::min(TILE, features - f0);
        as_constant<TILE>(size, [&](auto constant) {
            constexpr int SIZE = decltype(constant)::value;
            for (int lane = 0; lane < lanes; ++lane) {
                const Number* from = states + ptrdiff_t(state[lane]) * features + f0;
                float* to = x + ptrdiff_t(f0) * STRIDE + lane;
                UNROLL for (int f = 0; f < SIZE; ++f) to[f * STRIDE] = float(from[f]);
            }
        });
        for (int f = f0; f < f0 + size; ++f) {
            float* row = x + ptrdiff_t(f) * STRIDE;
            // Lanes beyond the chunk's become 0. What the last step left in them would be scaled again and again,
            // until it is infinite, and 0 times infinity is no gradient.
            for (int lane = lanes; lane % WIDTH != 0; ++lane) row[lane] = p.center[f];
            for (int v = 0; v < lanes; v += WIDTH) store(row + v, (load(row + v) - p.center[f]) / p.half[f]);
        }
    }
}

// V at the states in the first activations: x ← max(0, W x + b), the last layer without the maximum.
void forward(const Problem& p, Scratch& s, int vectors) {
    const float* w = p.parameters;
    for (int l = 0; l < p.layers; ++l) {
        const int inputs = p.sizes[l], outputs = p.sizes[l + 1];
        const float* biases = w + ptrdiff_t(inputs) * outputs;
        const auto bias = [&](int m) { return biases[m]; };
        const float* x = s.activations[l].get();
        const Matrix transposed{w, 1, outputs};
        if (l + 1 < p.layers) {
            const auto relu = [](ptrdiff_t, Vec y) { return y < 0 ? Vec{} : y; };  // keeps NaN
            product(transposed, outputs, inputs, x, s.activations[l + 1].get(), vectors, bias, relu);
        } else {
            const auto same = [](ptrdiff_t, Vec y) { return y; };
            product(transposed, outputs, inputs, x, s.value.get(), vectors, bias, same);
        }
        w = biases + outputs;
    }
}

// Add the chunk's part of the gradient; the delta of the output is in s.delta[0].
void backward(const Problem& p, Scratch& s, int vectors, float* gradient) {
    ptrdiff_t offset = 0;
    for (int l = 0; l < p.layers; ++l) offset += ptrdiff_t(p.sizes[l] + 1) * p.sizes[l + 1];
    int now = 0;
    for (int l = p.layers - 1; l >= 0; --l) {
        const int inputs = p.sizes[l], outputs = p.sizes[l + 1];
        offset -= ptrdiff_t(inputs + 1) * outputs;
        const float* x = s.activations[l].get();
        const float* d = s.delta[now].get();
        weight_gradient(x, inputs + 1, d, outputs, vectors, gradient + offset);
        if (l == 0) break;
        const auto zero = [](int) { return 0.0f; };
        const auto relu = [x](ptrdiff_t at, Vec y) { return load(x + at) > 0 ? y : Vec{}; };
        const Matrix weights{p.parameters + offset, outputs, 1};
        product(weights, inputs, outputs, d, s.delta[1 - now].get(), vectors, zero, relu);
        now = 1 - now;
    }
}

inline Vec fallback(const Problem& p, Vec target, Vec lower, Vec upper, Vec returns) {
    if (p.fallback == RETURN) return returns;
    if (p.fallback == MIDPOINT) return (lower + upper) / 2;
    const Vec raised = target < lower ? lower : target;
    return raised > upper ? upper : raised;
}

// The rows that lanes first, ..., first + lanes - 1 of this step learn from, column by column. What is needed
// next is asked for in loops of little else, so that many misses of the cache are under way at once.
void fetch(const Problem& p, int64_t step, int first, int lanes, Scratch& s) {
    int32_t transition[LANES];
    const uint32_t stream = stream_of(p.seed, step);
    for (int lane = 0; lane < lanes; ++lane) {
        const uint32_t number = uint32_t(first + lane);
        transition[lane] = int32_t(p.whole ? number : counter_bits(p.seed, stream, number) % p.count);
    }
    for (int lane = 0; lane < lanes; ++lane) {
        if (p.draws) transition[lane] = p.draws[transition[lane]];
        __builtin_prefetch(p.rows + transition[lane]);
    }
    constexpr ptrdiff_t LINE = 64, MOST = 16 * LINE;  // the hardware goes on by itself in longer states
    const ptrdiff_t size = ptrdiff_t(p.sizes[0]) * (p.states_are_bytes ? 1 : sizeof(float));
    const char* states = static_cast<const char*>(p.states);
    for (int lane = 0; lane < lanes; ++lane) {
        const Row& row = p.rows[transition[lane]];
        s.state[lane] = row.state, s.next_state[lane] = row.next_state;
        s.target.get()[lane] = row.reward, s.discount.get()[lane] = row.discount;
        s.lower.get()[lane] = row.lower, s.upper.get()[lane] = row.upper;
        s.other.get()[lane] = row.fallback;
        for (ptrdiff_t byte = 0; byte < std::min(size, MOST); byte += LINE) {
            __builtin_prefetch(states + row.state * size + byte);
            if (p.bootstraps) __builtin_prefetch(states + row.next_state * size + byte);
        }
    }
}

// One chunk of the batch: adds its part of the gradient and returns its sums.
Sums run_chunk(const Problem& p, Scratch& s, int64_t step, int first, int lanes, float* gradient) {
    fetch(p, step, first, lanes, s);
    const int vectors = (lanes + WIDTH - 1) / WIDTH;
    const auto see = [&](const int32_t* state) {
        float* x = s.activations[0].get();
        if (p.states_are_bytes)
            gather<uint8_t>(p, state, lanes, x);
        else
            gather<float>(p, state, lanes, x);
        forward(p, s, vectors);
    };
    if (p.bootstraps) {
        see(s.next_state);
        for (int lane = 0; lane < lanes; ++lane)
            s.target.get()[lane] += s.discount.get()[lane] * s.value.get()[lane];
    }
    see(s.state);

    Sums sums;
    Vec loss{}, below{}, above{};
    const float scale = 2.0f / float(p.batch);
    for (int v = 0; v < vectors; ++v) {
        const int at = v * WIDTH;
        const Vec value = load(s.value.get() + at), target = load(s.target.get() + at);
        const Vec lower = load(s.lower.get() + at), upper = load(s.upper.get() + at);
        const Vec tested = p.tests_value ? value : target;
        const Mask inside = (lower < tested) & (tested < upper);
        const Vec y = inside ? target : fallback(p, target, lower, upper, load(s.other.get() + at));
        Mask counts;  // all ones in lanes of the batch, zero in the padding
        for (int lane = 0; lane < WIDTH; ++lane) counts[lane] = at + lane < lanes ? -1 : 0;
        const Vec error = counts ? value - y : Vec{}, one = broadcast(1.0f);
        loss += error * error;
        below += counts & (tested <= lower) ? one : Vec{};
        above += counts & (tested >= upper) ? one : Vec{};
        store(s.delta[0].get() + at, scale * error);
    }
    for (int lane = 0; lane < WIDTH; ++lane) {
        sums.loss += loss[lane];
        sums.below += below[lane];
        sums.above += above[lane];
    }
    backward(p, s, vectors, gradient);
    return sums;
}

// ------------------------------------------------------------------------------------------------- Adam

// m ← β1 m + (1 - β1) g;  v ← β2 v + (1 - β2) g²;  w ← w - η m̂ / (sqrt(v̂) + ε), with
// m̂ = m / (1 - β1^t) and v̂ = v / (1 - β2^t).
// g is the sum of the slices' gradients, which are left at zero. `begin` and `end` are multiples of 16.
void adam(const Problem& p, float* gradients, int slices, int64_t step, ptrdiff_t begin, ptrdiff_t end) {
    constexpr float b1 = 0.9f, b2 = 0.999f;
    const float t = float(step + 1);
    const float m_unbias = 1 / (1 - std::pow(b1, t)), v_unbias = 1 / (1 - std::pow(b2, t));
    for (ptrdiff_t at = begin; at < end; at += WIDTH) {
        Vec g{};
        for (int s = 0; s < slices; ++s) {
            float* from = gradients + s * ptrdiff_t(p.padded) + at;
            g += load(from);
            store(from, Vec{});
        }
        const Vec m = b1 * load(p.first_moment + at) + (1 - b1) * g;
        const Vec v = b2 * load(p.second_moment + at) + (1 - b2) * (g * g);
        store(p.first_moment + at, m);
        store(p.second_moment + at, v);
        Vec root = v * v_unbias;
        for (int lane = 0; lane < WIDTH; ++lane) root[lane] = std::sqrt(root[lane]);
        const Vec change = p.learning_rate * ((m * m_unbias) / (root + p.epsilon));
        store(p.parameters + at, load(p.parameters + at) - change);
    }
}

// ---------------------------------------------------------------------------------------------- threads

// Where threads wait for each other: they spin, as an update takes microseconds, and give way if it is long.
class Barrier {
  public:
    void wait(int threads) {
        if (threads == 1) return;
        const uint32_t round = round_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins)
            if (spins > 2000) std::this_thread::yield();
    }

  private:
    std::atomic<int> arrived_{0};
    std::atomic<uint32_t> round_{0};
};

// What the threads of one network share. Slices and their order are a function of the batch size alone.
struct Team {
    Team(Problem& problem, int64_t from, int64_t to) : p(problem), start(from), stop(to) {}

    Problem& p;
    const int64_t start, stop;
    const int chunks = (p.batch + LANES - 1) / LANES;
    const int lanes = (p.batch + 16 * chunks - 1) / (16 * chunks) * 16;  // of each chunk but the last
    const int slices = std::min(chunks, MAX_SLICES);
    Buffer gradients{size_t(slices) * p.padded};
    std::vector<Sums> sums{size_t(slices)};
    std::atomic<int> threads{0};  // how many there are; 0 until all have been started
    Barrier barrier;

    // Take one slice through a step.
    void run_slice(Scratch& scratch, int64_t step, int slice) {
        sums[slice] = Sums{};
        for (int chunk = chunks * slice / slices; chunk < chunks * (slice + 1) / slices; ++chunk) {
            const int first = chunk * lanes, last = std::min(first + lanes, int(p.batch));
            float* gradient = gradients.get() + ptrdiff_t(slice) * p.padded;
            sums[slice] += run_chunk(p, scratch, step, first, last - first, gradient);
        }
    }

    // Add a step to the history, and note the first whose loss is not finite.
    void record(int64_t step) {
        Sums total;
        for (const Sums& part : sums) total += part;
        const float n = float(p.batch), loss = total.loss / n;
        float* entry = p.history + 4 * (step * 100 / p.steps);
        entry[0] += loss, entry[1] += total.below / n, entry[2] += total.above / n, entry[3] += 1;
        if (!std::isfinite(loss)) p.diverged_at = step;
    }

    // The work of one thread: its slices, then its share of the parameters.
    void work(int thread, Scratch& scratch) {
        while (!threads.load(std::memory_order_acquire)) std::this_thread::yield();
        const int count = threads.load(std::memory_order_relaxed);
        const ptrdiff_t blocks = p.padded / 16;
        const ptrdiff_t begin = blocks * thread / count * 16, end = blocks * (thread + 1) / count * 16;
        for (int64_t step = start; step < stop && p.diverged_at < 0; ++step) {
            for (int slice = thread; slice < slices; slice += count) run_slice(scratch, step, slice);
            barrier.wait(count);
            adam(p, gradients.get(), slices, step, begin, end);
            if (thread == 0) record(step);
            barrier.wait(count);
        }
    }
};

// Steps start, ..., stop - 1, or up to the first whose loss is not finite, on at most this many threads.
void run(Problem& p, int64_t start, int64_t stop, int threads) {
    Team team(p, start, stop);
    threads = std::clamp(threads, 1, team.slices);
    std::vector<Scratch> scratches;
    for (int t = 0; t < threads; ++t) scratches.emplace_back(p);
    std::vector<std::thread> others;
    others.reserve(threads);
    try {
        for (int t = 1; t < threads; ++t)
            others.emplace_back([&, t] { team.work(t, scratches[t]); });
    } catch (const std::system_error&) {
        // The system has no more threads: those that did start do the work.
    }
    team.threads.store(1 + int(others.size()), std::memory_order_release);
    team.work(0, scratches[0]);
    for (std::thread& other : others) other.join();
}

}  // namespace

extern "C" {

// Train; 0, or 1 where memory ran out.
int32_t adaptive_td_advance(Problem* problem, int64_t start, int64_t stop, int32_t threads) {
    try {
        run(*problem, start, stop, threads);
        return 0;
    } catch (...) {
        return 1;
    }
}

// The random bits of lanes 0, ..., count - 1, for tests.
void adaptive_td_bits(const uint32_t* seed, int64_t step, int32_t count, uint32_t* out) {
    const uint32_t stream = stream_of(seed, step);
    for (int32_t lane = 0; lane < count; ++lane) out[lane] = counter_bits(seed, stream, uint32_t(lane));
}

// The widest instruction set of this machine: 2 AVX-512, 1 AVX2 with FMA, 0 neither.
int32_t adaptive_td_machine() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

// What this library was compiled from: a digest of this file, so that a stale build is noticed.
const char* adaptive_td_source() {
#ifdef SOURCE_DIGEST
    return SOURCE_DIGEST;
#else
    return "";
#endif
}

}  // extern "C"
