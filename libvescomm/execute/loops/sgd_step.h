// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vescomm::internal {

// Constants of one step of stochastic gradient descent, rounded to float where PyTorch rounds.
struct SgdStep {
    float gradient_scale;  // multiplies every gradient first: 1, or the factor of clipping
    float coupled_decay;  // weight decay that is added to the gradient; 0: none
    float decay;  // factor of the parameter before the step; 1: no decoupled weight decay
    float momentum;
    float fresh;  // the momentum's factor of a gradient: 1 - dampening; 1 in the first step
    float learning_rate;
    bool nesterov;
};

}  // namespace vescomm::internal
