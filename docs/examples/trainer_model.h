/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The model of trainer.c and trainer.cpp: w2 tanh(w1 in + b1) + b2, which learns
 * sin(2 in[o] + in[o + 1]). No communication.
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include <math.h>
#include <stdint.h>

enum { INPUTS = 8, HIDDEN = 48, OUTPUTS = 4, BATCH = 120 };
enum { W1, B1, W2, B2, TENSORS };
static const char *const names[TENSORS] = {"w1", "b1", "w2", "b2"};
static const int64_t shapes[TENSORS][2] = {
    {HIDDEN, INPUTS}, {HIDDEN, 1}, {OUTPUTS, HIDDEN}, {OUTPUTS, 1}};
static const int dimensions[TENSORS] = {2, 1, 2, 1};
/* Rows that stay on one rank. */
static const int64_t block_rows[TENSORS] = {4, 1, 4, 1};

/* A fixed pseudo-random number in [-1, 1), the same on every rank. */
static inline float noise(const char *name, int64_t element) {
    uint32_t x = (uint32_t)(name[0] * 31 + name[1]) * 2654435761u ^ (uint32_t)element * 2246822519u;
    x = (x ^ x >> 15) * 3266489917u;
    return (float)(int32_t)(x ^ x >> 16) / 2147483648.0f;
}

/* Adds the gradients of one sample to g, and returns its loss. p and g are the tensors. */
static inline double backward(float *const p[], float *const g[], int64_t sample) {
    float in[INPUTS], hidden[HIDDEN], into[HIDDEN] = {0};
    double loss = 0;
    for (int i = 0; i < INPUTS; ++i) in[i] = noise("in", sample * INPUTS + i);
    for (int h = 0; h < HIDDEN; ++h) {
        float sum = p[B1][h];
        for (int i = 0; i < INPUTS; ++i) sum += p[W1][h * INPUTS + i] * in[i];
        hidden[h] = tanhf(sum);
    }
    for (int o = 0; o < OUTPUTS; ++o) {
        float out = p[B2][o];
        for (int h = 0; h < HIDDEN; ++h) out += p[W2][o * HIDDEN + h] * hidden[h];
        const float error = out - sinf(2 * in[o] + in[o + 1]);
        const float mean = error / (float)BATCH; /* over the whole batch of all ranks */
        loss += 0.5 * error * mean;
        g[B2][o] += mean;
        for (int h = 0; h < HIDDEN; ++h) {
            g[W2][o * HIDDEN + h] += mean * hidden[h];
            into[h] += mean * p[W2][o * HIDDEN + h];
        }
    }
    for (int h = 0; h < HIDDEN; ++h) {
        const float slope = into[h] * (1 - hidden[h] * hidden[h]);
        g[B1][h] += slope;
        for (int i = 0; i < INPUTS; ++i) g[W1][h * INPUTS + i] += slope * in[i];
    }
    return loss;
}

#endif
