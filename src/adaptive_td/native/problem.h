// What the kernel is given; `library.py` has the same structures.

#pragma once

#include <cstdint>

namespace {

enum Fallback : int32_t { MIDPOINT, ENDPOINT, RETURN };

}  // namespace

extern "C" {

// What a transition teaches: T = reward + discount V(next_state) for V(state), kept between the bounds. Two rows
// are one cache line.
struct Row {
    int32_t state, next_state;
    float reward, discount, lower, upper, fallback;
    int32_t last;  // of its episode
};

// A convolution without padding: its input, and its units, each with a kernel x kernel window on all channels.
struct Convolution {
    int32_t channels, height, width, units, kernel, stride;
};

// One network, its log, and how it is updated.
struct Problem {
    // The network: convolutions, if any, and then dense layers; layer l maps sizes[l] to sizes[l + 1] numbers, and
    // sizes[layers] = 1. Parameters are laid end to end, each layer's weights (as [input][output], or as
    // convolutional.h says) and then its biases; padded with zeros to `padded`.
    const Convolution* convolutions;
    int32_t convolution_count;
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
    // With convolutions, a state is `stack` rows of the log that end at its own; ages count rows in an episode.
    int32_t stack;
    const int32_t* ages;
    // The update.
    int32_t batch;
    int32_t whole;
    int32_t window;  // steps after which V takes over: 0 where the reward is the whole target, 1 in TD(0)
    float lam;       // in between, V takes over to the part 1 - λ at every step
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
