// Networks of convolutions and dense layers with ReLU, and one output. Vectors run along the units of a layer:
//
//     y[row][unit] = max(0, b[unit] + Σ_k x[row's place + offset[k]] w[k][unit])
//
// A row is a position of the kernel in one sample's picture, or a whole sample where the layer is dense; `offset`
// says where the numbers that the kernel covers lie, so that no patch is ever copied. The input gradient is a
// product of the same form, with the weights transposed, whose rows are added up where patches overlap.
//
// Weights lie in panels of 32 units, [panel][k][32], each read from end to end. Pictures of the log are planar,
// [channel][line][column], all later ones are [line][column][channel]: either way, RUN numbers that follow each
// other in k follow each other in memory.

#pragma once

#include <vector>

#include "problem.h"
#include "vectors.h"

namespace {

constexpr int PANEL = 32;
constexpr int RUN = 8;
constexpr int TILE_ROWS = MANY_REGISTERS ? 12 : 6;  // rows x two vectors of units are held in registers
constexpr int BLOCK_ROWS = 128;  // rows whose deltas stay in L1 while the gradients of all weights pass by

// One layer: what its units see, and where it lies.
struct Layer {
    int depth, units;                          // numbers that a unit sees; units, a multiple of PANEL
    int lines, columns;                        // positions of the kernel; 1 x 1 if dense
    ptrdiff_t line_step, column_step, sample;  // floats of the input from one to the next
    ptrdiff_t weights;                         // the place of its weights among the parameters; biases follow
    std::vector<int32_t> offset;               // of what a unit sees, from its position's place
    Buffer transposed;                         // the weights as [k / PANEL][unit][PANEL]

    ptrdiff_t biases() const { return weights + ptrdiff_t(depth) * units; }
    ptrdiff_t outputs() const { return ptrdiff_t(lines) * columns * units; }
    bool dense() const { return lines * columns == 1; }

    // Rows that follow each other at equal steps.
    struct Line {
        ptrdiff_t input;  // the place of the first
        int row, count;
        ptrdiff_t step;
    };
    int line_count(int samples) const { return dense() ? 1 : samples * lines; }
    Line line(int number, int samples) const {
        if (dense()) return {0, 0, samples, sample};
        const ptrdiff_t place = number / lines * sample + number % lines * line_step;
        return {place, number * columns, columns, column_step};
    }
};

// sum[r] += Σ_k x[r step + at(k)] w[k], for two vectors of units.
template <int R, class At>
inline void multiply(const float* x, ptrdiff_t step, At at, int depth, const float* w, Vec (&sum)[R][2]) {
    for (int k = 0; k < depth; ++k, w += PANEL) {
        const Vec left = load(w), right = load(w + WIDTH);
        const float* in = x + at(k);
        UNROLL for (int r = 0; r < R; ++r) {
            const Vec factor = broadcast(in[r * step]);
            sum[r][0] += factor * left;
            sum[r][1] += factor * right;
        }
    }
}

// One thread's network: V of a chunk of states, and the gradient of their loss.
class Convolutional {
  public:
    static constexpr int LANES = 16;

    // What the threads of a network share: its layers, and transposed weights, made anew in every step.
    struct Shared {
        std::vector<Layer> layers;
        ptrdiff_t last = 0;  // the place of the last layer's weights

        explicit Shared(const Problem& p) {
            for (int l = 0; l < p.convolution_count; ++l) add_convolution(p.convolutions[l], l == 0);
            for (int l = 0; l + 1 < p.layers; ++l) {
                std::vector<int32_t> offset(p.sizes[l]);
                for (int k = 0; k < p.sizes[l]; ++k) offset[k] = k;
                add({p.sizes[l], p.sizes[l + 1], 1, 1, 0, 0, p.sizes[l], last, offset, Buffer{}});
            }
        }

        // Transpose the weights, a share of them in each thread; true, as the threads must wait for each other.
        bool prepare(const Problem& p, int thread, int threads) {
            for (size_t l = 1; l < layers.size(); ++l) {
                const Layer& layer = layers[l];
                for (int k = thread * PANEL; k < layer.depth; k += threads * PANEL)
                    for (int u = 0; u < layer.units; u += PANEL) {
                        const float* from = p.parameters + layer.weights + (ptrdiff_t(u) * layer.depth + k * PANEL);
                        float* to = layer.transposed.get() + (ptrdiff_t(k) * layer.units + u * PANEL);
                        for (int j = 0; j < PANEL; ++j)
                            for (int i = 0; i < PANEL; ++i) to[i * PANEL + j] = from[j * PANEL + i];
                    }
            }
            return true;
        }

      private:
        void add(Layer layer) {
            if (!layers.empty()) layer.transposed = Buffer(size_t(layer.depth) * layer.units);
            last = layer.biases() + layer.units;
            layers.push_back(std::move(layer));
        }

        void add_convolution(const Convolution& c, bool planar) {
            const ptrdiff_t column = planar ? 1 : c.channels, line = c.width * column;
            const ptrdiff_t channel = planar ? ptrdiff_t(c.height) * c.width : 1;
            std::vector<int32_t> offset;
            const auto see = [&](int i, int y, int x) {
                offset.push_back(int32_t(i * channel + y * line + x * column));
            };
            if (planar)
                for (int i = 0; i < c.channels; ++i)
                    for (int y = 0; y < c.kernel; ++y)
                        for (int x = 0; x < c.kernel; ++x) see(i, y, x);
            else
                for (int y = 0; y < c.kernel; ++y)
                    for (int x = 0; x < c.kernel; ++x)
                        for (int i = 0; i < c.channels; ++i) see(i, y, x);
            const int lines = (c.height - c.kernel) / c.stride + 1, columns = (c.width - c.kernel) / c.stride + 1;
            add({int(offset.size()), c.units, lines, columns, c.stride * line, c.stride * column,
                 ptrdiff_t(c.channels) * c.height * c.width, last, offset, Buffer{}});
        }
    };

    Convolutional(const Problem& problem, const Shared& shared_) : p(problem), shared(shared_) {
        size_t widest = 0;
        for (const Layer& layer : shared.layers) {
            activations.emplace_back(size_t(layer.sample) * LANES);
            widest = std::max(widest, size_t(layer.outputs()) * LANES);
        }
        activations.emplace_back(size_t(shared.layers.back().outputs()) * LANES);
        for (Buffer& d : deltas) d = Buffer(widest);
    }

    float* value() { return values.get(); }
    float* delta() { return value_deltas.get(); }

    // V at these states of the log.
    void see(const int32_t* state, int samples) {
        if (p.states_are_bytes)
            gather<uint8_t>(state, samples);
        else
            gather<float>(state, samples);
        for (size_t l = 0; l < shared.layers.size(); ++l)
            forward(shared.layers[l], samples, activations[l].get(), activations[l + 1].get());
        const int width = shared.layers.back().units;
        const float *w = p.parameters + shared.last, *x = activations.back().get();
        for (int s = 0; s < samples; ++s, x += width) {
            Vec sum{};
            for (int u = 0; u < width; u += WIDTH) sum += load(x + u) * load(w + u);
            float total = w[width];
            for (int lane = 0; lane < WIDTH; ++lane) total += sum[lane];
            values.get()[s] = total;
        }
    }

    // Add the part of the gradient that is due to the states seen last.
    void backward(int samples, float* gradient) {
        const int width = shared.layers.back().units;
        const float* w = p.parameters + shared.last;
        float* g = gradient + shared.last;
        for (int s = 0; s < samples; ++s) {
            const float error = value_deltas.get()[s];
            const float* x = activations.back().get() + ptrdiff_t(s) * width;
            float* d = deltas[0].get() + ptrdiff_t(s) * width;
            for (int u = 0; u < width; u += WIDTH) {
                store(g + u, load(g + u) + error * load(x + u));
                store(d + u, load(x + u) > 0 ? error * load(w + u) : Vec{});
            }
            g[width] += error;
        }
        int now = 0;
        for (size_t l = shared.layers.size(); l-- > 0; now = 1 - now) {
            const Layer& layer = shared.layers[l];
            const float *x = activations[l].get(), *d = deltas[now].get();
            weight_gradient(layer, samples, x, d, gradient);
            if (l > 0) input_gradient(layer, samples, x, d, deltas[1 - now].get());
        }
    }

  private:
    // x = (state - center) / half, for these states; where several rows of the log make a state, those from
    // before its episode are 0.
    template <class Number>
    void gather(const int32_t* state, int samples) {
        const ptrdiff_t sample = shared.layers[0].sample, size = sample / p.stack;
        for (int s = 0; s < samples; ++s)
            for (int back = p.stack - 1, at = 0; back >= 0; --back, at += size) {
                float* to = activations[0].get() + s * sample + at;
                const bool seen = p.stack == 1 || back <= p.ages[state[s]];
                const Number* from = static_cast<const Number*>(p.states) + (seen ? state[s] - back : 0) * size;
                const float scale = seen ? 1 : 0;
                for (ptrdiff_t f = 0; f < size; ++f)
                    to[f] = (scale * float(from[f]) - p.center[at + f]) / p.half[at + f];
            }
    }

    void forward(const Layer& layer, int samples, const float* x, float* y) const {
        const float* biases = p.parameters + layer.biases();
        const auto at = [&](int k) { return layer.offset[k]; };
        for (int u = 0; u < layer.units; u += 2 * WIDTH) {
            const float* w = panel(p.parameters + layer.weights, layer.depth, u);
            const Vec start[2] = {load(biases + u), load(biases + u + WIDTH)};
            for (int n = 0; n < layer.line_count(samples); ++n) {
                const Layer::Line line = layer.line(n, samples);
                pieces<TILE_ROWS>(line.count, [&](int r0, auto rows) {
                    constexpr int R = decltype(rows)::value;
                    Vec sum[R][2];
                    UNROLL for (int r = 0; r < R; ++r) sum[r][0] = start[0], sum[r][1] = start[1];
                    multiply<R>(x + line.input + r0 * line.step, line.step, at, layer.depth, w, sum);
                    float* to = y + ptrdiff_t(line.row + r0) * layer.units + u;
                    UNROLL for (int r = 0; r < R; ++r, to += layer.units)
                        UNROLL for (int v = 0; v < 2; ++v)
                            store(to + v * WIDTH, sum[r][v] < 0 ? Vec{} : sum[r][v]);  // keeps NaN
                });
            }
        }
    }

    // gradient[k][unit] += Σ_row x[row's place + offset[k]] d[row][unit], and of the biases Σ_row d[row][unit]
    static void weight_gradient(const Layer& layer, int samples, const float* x, const float* d, float* gradient) {
        const int count = layer.line_count(samples), rows = samples * layer.lines * layer.columns;
        const int block = std::max(1, BLOCK_ROWS / layer.line(0, samples).count);
        for (int u = 0; u < layer.units; u += 2 * WIDTH) {
            float* biases = gradient + layer.biases() + u;
            Vec sums[2] = {load(biases), load(biases + WIDTH)};
            for (int row = 0; row < rows; ++row)
                for (int v = 0; v < 2; ++v) sums[v] += load(d + ptrdiff_t(row) * layer.units + u + v * WIDTH);
            for (int v = 0; v < 2; ++v) store(biases + v * WIDTH, sums[v]);

            float* weights = panel(gradient + layer.weights, layer.depth, u);
            for (int first = 0; first < count; first += block)
                for (int k = 0; k < layer.depth; k += RUN) {
                    float* g = weights + ptrdiff_t(k) * PANEL;
                    Vec sum[RUN][2];
                    UNROLL for (int j = 0; j < RUN; ++j)
                        UNROLL for (int v = 0; v < 2; ++v) sum[j][v] = load(g + j * PANEL + v * WIDTH);
                    for (int n = first; n < std::min(first + block, count); ++n) {
                        const Layer::Line line = layer.line(n, samples);
                        const float* in = x + line.input + layer.offset[k];
                        const float* out = d + ptrdiff_t(line.row) * layer.units + u;
                        for (int r = 0; r < line.count; ++r, in += line.step, out += layer.units) {
                            const Vec left = load(out), right = load(out + WIDTH);
                            UNROLL for (int j = 0; j < RUN; ++j) {
                                const Vec factor = broadcast(in[j]);
                                sum[j][0] += factor * left;
                                sum[j][1] += factor * right;
                            }
                        }
                    }
                    UNROLL for (int j = 0; j < RUN; ++j)
                        UNROLL for (int v = 0; v < 2; ++v) store(g + j * PANEL + v * WIDTH, sum[j][v]);
                }
        }
    }

    // to[row's place + offset[k]] += Σ_unit w[k][unit] d[row][unit], and 0 where x, the input, is not positive
    static void input_gradient(const Layer& layer, int samples, const float* x, const float* d, float* to) {
        const ptrdiff_t size = samples * layer.sample;
        std::fill_n(to, size, 0.0f);
        const auto at = [](int unit) { return unit; };
        for (int k = 0; k < layer.depth; k += 2 * WIDTH) {
            const float* w = panel(layer.transposed.get(), layer.units, k);
            for (int n = 0; n < layer.line_count(samples); ++n) {
                const Layer::Line line = layer.line(n, samples);
                pieces<TILE_ROWS>(line.count, [&](int r0, auto rows) {
                    constexpr int R = decltype(rows)::value;
                    Vec sum[R][2] = {};
                    multiply<R>(d + ptrdiff_t(line.row + r0) * layer.units, layer.units, at, layer.units, w, sum);
                    float* place = to + line.input + r0 * line.step + layer.offset[k];
                    UNROLL for (int r = 0; r < R; ++r, place += line.step)
                        UNROLL for (int v = 0; v < 2; ++v)
                            store(place + v * WIDTH, load(place + v * WIDTH) + sum[r][v]);
                });
            }
        }
        for (ptrdiff_t f = 0; f < size; f += WIDTH) store(to + f, load(x + f) > 0 ? load(to + f) : Vec{});
    }

    // Where the column of a matrix in panels starts.
    template <class Number>
    static Number* panel(Number* matrix, int depth, int column) {
        return matrix + (ptrdiff_t(column / PANEL) * depth * PANEL + column % PANEL);
    }

    const Problem& p;
    const Shared& shared;
    std::vector<Buffer> activations;  // the input of every layer, and the output of the last but one
    Buffer deltas[2], values{LANES}, value_deltas{LANES};
};

}  // namespace
