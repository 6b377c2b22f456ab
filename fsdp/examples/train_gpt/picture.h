// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loss curve as a picture, drawn by plot_loss.py.
#pragma once

#include <string>

namespace train_gpt {

// Draws the results in a JSON file. Throws std::runtime_error, with the cause, when Python,
// matplotlib or the script is missing or the picture cannot be written.
void draw_loss(const std::string &json_path, const std::string &picture_path);

}  // namespace train_gpt
