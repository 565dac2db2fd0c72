// Dense ReLU networks. Activations are feature-major, `x[feature][lane]`: vectors run along the batch, and a layer
// of 50 units needs no padding. Forward pass, input gradient and weight gradient are register-blocked loops of
// one form; the activations of a chunk of lanes stay in the L2 cache.

#pragma once

#include <vector>

#include "problem.h"
#include "vectors.h"

namespace {

// More lanes in a chunk are fewer sums across vectors in `weight_gradient`; fewer leave more chunks to threads.
constexpr int DENSE_LANES = 256;
constexpr int STRIDE = DENSE_LANES + 16;  // between features; no power of two, which would crowd few cache sets

// Tiles of sums held in registers: rows x vectors of lanes in products, inputs x outputs in weight gradients.
constexpr int ROWS = 6;
constexpr int VECTORS = MANY_REGISTERS ? 4 : 2;
constexpr int GRADIENT_INPUTS = MANY_REGISTERS ? 6 : 4;
constexpr int GRADIENT_OUTPUTS = MANY_REGISTERS ? 4 : 3;
constexpr int GRADIENT_PANEL = 16;  // outputs whose deltas stay in L1 while all inputs pass by

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

// One thread's dense network: V of a chunk of states, and the gradient of their loss.
class Dense {
  public:
    static constexpr int LANES = DENSE_LANES;

    // What the threads of a network share: nothing.
    struct Shared {
        explicit Shared(const Problem&) {}
        bool prepare(const Problem&, int, int) { return false; }
    };

    Dense(const Problem& problem, const Shared&) : p(problem) {
        int widest = 1;
        for (int l = 0; l < p.layers; ++l) {
            activations.emplace_back(size_t(p.sizes[l] + 1) * STRIDE);
            std::fill_n(activations[l].get() + size_t(p.sizes[l]) * STRIDE, STRIDE, 1.0f);
            widest = std::max(widest, p.sizes[l + 1]);
        }
        for (Buffer& d : deltas) d = Buffer(size_t(widest) * STRIDE);
    }

    float* value() { return values.get(); }     // of each lane, once the states were seen
    float* delta() { return deltas[0].get(); }  // of each lane's value, to be filled in before `backward`

    // V at these states of the log: x ← max(0, W x + b), the last layer without the maximum.
    void see(const int32_t* state, int lanes) {
        if (p.states_are_bytes)
            gather<uint8_t>(state, lanes);
        else
            gather<float>(state, lanes);
        const int vectors = (lanes + WIDTH - 1) / WIDTH;
        const float* w = p.parameters;
        for (int l = 0; l < p.layers; ++l) {
            const int inputs = p.sizes[l], outputs = p.sizes[l + 1];
            const float* biases = w + ptrdiff_t(inputs) * outputs;
            const auto bias = [&](int m) { return biases[m]; };
            const float* x = activations[l].get();
            const Matrix transposed{w, 1, outputs};
            if (l + 1 < p.layers) {
                const auto relu = [](ptrdiff_t, Vec y) { return y < 0 ? Vec{} : y; };  // keeps NaN
                product(transposed, outputs, inputs, x, activations[l + 1].get(), vectors, bias, relu);
            } else {
                const auto same = [](ptrdiff_t, Vec y) { return y; };
                product(transposed, outputs, inputs, x, values.get(), vectors, bias, same);
            }
            w = biases + outputs;
        }
    }

    // Add the part of the gradient that is due to the states seen last.
    void backward(int lanes, float* gradient) {
        const int vectors = (lanes + WIDTH - 1) / WIDTH;
        ptrdiff_t offset = 0;
        for (int l = 0; l < p.layers; ++l) offset += ptrdiff_t(p.sizes[l] + 1) * p.sizes[l + 1];
        int now = 0;
        for (int l = p.layers - 1; l >= 0; --l) {
            const int inputs = p.sizes[l], outputs = p.sizes[l + 1];
            offset -= ptrdiff_t(inputs + 1) * outputs;
            const float* x = activations[l].get();
            const float* d = deltas[now].get();
            weight_gradient(x, inputs + 1, d, outputs, vectors, gradient + offset);
            if (l == 0) break;
            const auto zero = [](int) { return 0.0f; };
            const auto relu = [x](ptrdiff_t at, Vec y) { return load(x + at) > 0 ? y : Vec{}; };
            const Matrix weights{p.parameters + offset, outputs, 1};
            product(weights, inputs, outputs, d, deltas[1 - now].get(), vectors, zero, relu);
            now = 1 - now;
        }
    }

  private:
    // x[feature][lane] = (state - center) / half, for these states of the log.
    template <class Number>
    void gather(const int32_t* state, int lanes) {
        const Number* states = static_cast<const Number*>(p.states);
        float* x = activations[0].get();
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
                // Lanes beyond the chunk's become 0. What the last step left in them would be scaled again and
                // again, until it is infinite, and 0 times infinity is no gradient.
                for (int lane = lanes; lane % WIDTH != 0; ++lane) row[lane] = p.center[f];
                for (int v = 0; v < lanes; v += WIDTH) store(row + v, (load(row + v) - p.center[f]) / p.half[f]);
            }
        }
    }

    const Problem& p;
    std::vector<Buffer> activations;  // of every layer, and a row of ones after each, whose "weights" are biases
    Buffer deltas[2], values{LANES};
};

}  // namespace
