// The native engine: the one update of `rows.py` for dense and convolutional ReLU networks with Adam, on CPU
// threads.
//
//     T = r + c V(s');  y = T where lower < T < upper, else the fallback;  loss = mean (y - V(s))²
//
// What makes it fast:
// - Products are loops over tiles of sums that stay in registers (dense.h, convolutional.h), and what a chunk of
//   the batch needs stays in the cache.
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
#include <system_error>
#include <thread>
#include <vector>

#include "convolutional.h"
#include "dense.h"
#include "problem.h"
#include "vectors.h"

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

// ------------------------------------------------------------------------------------------- one chunk

constexpr int MAX_SLICES = 8;

// What one thread needs for a chunk: a network, and the columns of the chunk's rows.
template <class Network>
struct Scratch {
    static constexpr int LANES = Network::LANES;
    Network network;
    Buffer target{LANES}, lower{LANES}, upper{LANES}, other{LANES};
    int32_t state[LANES], transition[LANES];

    Scratch(const Problem& p, const typename Network::Shared& shared) : network(p, shared) {}
};

struct Sums {
    float loss = 0, below = 0, above = 0;

    void operator+=(const Sums& other) {
        loss += other.loss, below += other.below, above += other.above;
    }
};

inline Vec fallback(const Problem& p, Vec target, Vec lower, Vec upper, Vec returns) {
    if (p.fallback == RETURN) return returns;
    if (p.fallback == MIDPOINT) return (lower + upper) / 2;
    const Vec raised = target < lower ? lower : target;
    return raised > upper ? upper : raised;
}

// The rows that lanes first, ..., first + lanes - 1 of this step learn from, column by column. What is needed
// next is asked for in loops of little else, so that many misses of the cache are under way at once.
template <class Network>
void fetch(const Problem& p, int64_t step, int first, int lanes, Scratch<Network>& s) {
    int32_t* transition = s.transition;
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
    const ptrdiff_t size = p.convolution_count ? 0 : ptrdiff_t(p.sizes[0]) * (p.states_are_bytes ? 1 : sizeof(float));
    const char* states = static_cast<const char*>(p.states);
    for (int lane = 0; lane < lanes; ++lane) {
        const Row& row = p.rows[transition[lane]];
        s.state[lane] = row.state, s.target.get()[lane] = row.reward;
        s.lower.get()[lane] = row.lower, s.upper.get()[lane] = row.upper;
        s.other.get()[lane] = row.fallback;
        for (ptrdiff_t byte = 0; byte < std::min(size, MOST); byte += LINE) {
            __builtin_prefetch(states + row.state * size + byte);
            if (p.window) __builtin_prefetch(states + row.next_state * size + byte);
        }
    }
}

// T = Σ_k w_k (r_k + c_k v_k V(s'_k)) over the window of each lane: v_k = 1 - λ, or 1 where the window or its
// episode ends; w_0 = 1, w_{k+1} = λ c_k w_k. One step is TD(0); several are `lambda_window` in targets.py, summed
// up from its start.
template <class Network>
void look_ahead(const Problem& p, Scratch<Network>& s, int lanes) {
    const Row* row[Network::LANES];
    float weight[Network::LANES];
    int32_t next_state[Network::LANES];
    float *target = s.target.get(), *values = s.network.value();
    for (int lane = 0; lane < lanes; ++lane) {
        row[lane] = p.rows + s.transition[lane];
        weight[lane] = 1, target[lane] = 0;
    }
    for (int k = 1; k <= p.window; ++k) {
        for (int lane = 0; lane < lanes; ++lane) next_state[lane] = row[lane]->next_state;
        s.network.see(next_state, lanes);
        for (int lane = 0; lane < lanes; ++lane) {
            const Row& at = *row[lane];
            const bool ends = at.last || k == p.window;
            target[lane] += weight[lane] * (at.reward + at.discount * (ends ? 1 : 1 - p.lam) * values[lane]);
            weight[lane] *= ends ? 0 : at.discount * p.lam;
            if (!ends) ++row[lane];  // the last row of a log ends an episode
        }
    }
}

// One chunk of the batch: adds its part of the gradient and returns its sums.
template <class Network>
Sums run_chunk(const Problem& p, Scratch<Network>& s, int64_t step, int first, int lanes, float* gradient) {
    fetch(p, step, first, lanes, s);
    const float* values = s.network.value();
    if (p.window) look_ahead(p, s, lanes);
    s.network.see(s.state, lanes);

    Sums sums;
    Vec loss{}, below{}, above{};
    const float scale = 2.0f / float(p.batch);
    for (int at = 0; at < lanes; at += WIDTH) {
        const Vec value = load(values + at), target = load(s.target.get() + at);
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
        store(s.network.delta() + at, scale * error);
    }
    for (int lane = 0; lane < WIDTH; ++lane) {
        sums.loss += loss[lane];
        sums.below += below[lane];
        sums.above += above[lane];
    }
    s.network.backward(lanes, gradient);
    return sums;
}

// ------------------------------------------------------------------------------------------------- Adam

// m ← β1 m + (1 - β1) g;  v ← β2 v + (1 - β2) g²;  w ← w - η m̂ / (sqrt(v̂) + ε), with
// m̂ = m / (1 - β1^t) and v̂ = v / (1 - β2^t).
// g is the sum of the slices' gradients, which are left at zero. `begin` and `end` are multiples of 16.
void adam(const Problem& p, float* gradients, int slices, int64_t step, ptrdiff_t begin, ptrdiff_t end) {
    // 1 - β as Optax rounds it: 1 - 0.999f is off by 1.3e-5, and networks that differ by that part in the end.
    constexpr float b1 = 0.9f, b2 = 0.999f, rest1 = 0.1f, rest2 = 0.001f;
    const float t = float(step + 1);
    const float m_unbias = 1 / (1 - std::pow(b1, t)), v_unbias = 1 / (1 - std::pow(b2, t));
    for (ptrdiff_t at = begin; at < end; at += WIDTH) {
        Vec g{};
        for (int s = 0; s < slices; ++s) {
            float* from = gradients + s * ptrdiff_t(p.padded) + at;
            g += load(from);
            store(from, Vec{});
        }
        const Vec m = b1 * load(p.first_moment + at) + rest1 * g;
        const Vec v = b2 * load(p.second_moment + at) + rest2 * (g * g);
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
template <class Network>
struct Team {
    static constexpr int LANES = Network::LANES;

    Team(Problem& problem, int64_t from, int64_t to) : p(problem), start(from), stop(to) {}

    Problem& p;
    const int64_t start, stop;
    const int chunks = (p.batch + LANES - 1) / LANES;
    const int lanes = (p.batch + 16 * chunks - 1) / (16 * chunks) * 16;  // of each chunk but the last
    const int slices = std::min(chunks, MAX_SLICES);
    Buffer gradients{size_t(slices) * p.padded};
    std::vector<Sums> sums{size_t(slices)};
    typename Network::Shared shared{p};
    std::atomic<int> threads{0};  // how many there are; 0 until all have been started
    Barrier barrier;

    // Take one slice through a step.
    void run_slice(Scratch<Network>& scratch, int64_t step, int slice) {
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
    void work(int thread, Scratch<Network>& scratch) {
        while (!threads.load(std::memory_order_acquire)) std::this_thread::yield();
        const int count = threads.load(std::memory_order_relaxed);
        const ptrdiff_t blocks = p.padded / 16;
        const ptrdiff_t begin = blocks * thread / count * 16, end = blocks * (thread + 1) / count * 16;
        for (int64_t step = start; step < stop && p.diverged_at < 0; ++step) {
            if (shared.prepare(p, thread, count)) barrier.wait(count);
            for (int slice = thread; slice < slices; slice += count) run_slice(scratch, step, slice);
            barrier.wait(count);
            adam(p, gradients.get(), slices, step, begin, end);
            if (thread == 0) record(step);
            barrier.wait(count);
        }
    }
};

// f(thread) in threads 0, ..., threads - 1, of which this one is the first; `started` is told how many there are,
// which is fewer where the system has no more of them.
template <class F, class Started>
void in_threads(int threads, F&& f, Started&& started) {
    std::vector<std::thread> others;
    others.reserve(threads);
    try {
        for (int t = 1; t < threads; ++t) others.emplace_back([&, t] { f(t); });
    } catch (const std::system_error&) {
        // Those that did start do the work.
    }
    started(1 + int(others.size()));
    f(0);
    for (std::thread& other : others) other.join();
}

// Steps start, ..., stop - 1, or up to the first whose loss is not finite, on at most this many threads.
template <class Network>
void run(Problem& p, int64_t start, int64_t stop, int threads) {
    Team<Network> team(p, start, stop);
    threads = std::clamp(threads, 1, team.slices);
    std::vector<Scratch<Network>> scratches;
    scratches.reserve(threads);
    for (int t = 0; t < threads; ++t) scratches.emplace_back(p, team.shared);
    in_threads(
        threads, [&](int t) { team.work(t, scratches[t]); },
        [&](int count) { team.threads.store(count, std::memory_order_release); });
}

// out[state] = V at states 0, ..., count - 1 of the log, on at most this many threads.
template <class Network>
void evaluate(const Problem& p, int32_t count, int threads, float* out) {
    constexpr int LANES = Network::LANES;
    const typename Network::Shared shared(p);
    std::vector<Network> networks;
    networks.reserve(threads);
    for (int t = 0; t < threads; ++t) networks.emplace_back(p, shared);
    std::atomic<int32_t> next{0};
    const auto work = [&](int thread) {
        Network& network = networks[thread];
        int32_t state[LANES];
        for (int32_t first; (first = next.fetch_add(LANES)) < count;) {
            const int lanes = std::min(LANES, count - first);
            for (int lane = 0; lane < lanes; ++lane) state[lane] = first + lane;
            network.see(state, lanes);
            std::copy_n(network.value(), lanes, out + first);
        }
    };
    in_threads(threads, work, [](int) {});
}

}  // namespace

extern "C" {

// Train; 0, or 1 where memory ran out.
int32_t adaptive_td_advance(Problem* problem, int64_t start, int64_t stop, int32_t threads) {
    try {
        const auto train = problem->convolution_count ? run<Convolutional> : run<Dense>;
        train(*problem, start, stop, threads);
        return 0;
    } catch (...) {
        return 1;
    }
}

// V at states 0, ..., count - 1 of the log; 0, or 1 where memory ran out.
int32_t adaptive_td_values(const Problem* problem, int32_t count, int32_t threads, float* out) {
    try {
        const auto look = problem->convolution_count ? evaluate<Convolutional> : evaluate<Dense>;
        look(*problem, count, threads, out);
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
