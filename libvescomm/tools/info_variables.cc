// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/info_variables.h"

#include <cstdio>

#include "schedule/forced.h"

namespace vescomm::internal {

namespace {

using Group = Variable::Group;

std::string with_unit(const std::string &text, const Variable &variable) {
    return variable.unit.empty() ? text : text + " " + variable.unit;
}

void show_row(const Variable &variable) {
    std::string row = "| `" + variable.name + "` | ";
    if (variable.group == Group::setting)
        row +=
            (variable.fallback.empty() ? "empty" : with_unit(variable.fallback, variable)) + " | ";
    std::printf("%s%s | %s |\n", row.c_str(), variable.values.c_str(), variable.what.c_str());
}

void show_table(Group group, const char *heading) {
    std::printf("%s", heading);
    for (const Variable &variable : variables())
        if (variable.group == group) show_row(variable);
}

}  // namespace

void show_variables(const Environment &environment) {
    for (const Variable &variable : variables()) {
        std::printf("  %s%s (%s)\n      %s", variable.name.c_str(),
                    variable.group == Group::prefix ? "..." : "", variable.values.c_str(),
                    variable.what.c_str());
        if (variable.group == Group::setting)
            std::printf(" Default: %s.", variable.fallback.empty()
                                             ? "empty"
                                             : with_unit(variable.fallback, variable).c_str());
        const char *given = environment(variable.name.c_str());
        if (given != nullptr && *given != '\0')
            std::printf("\n      Set to %s.",
                        variable.name == "VESCOMM_SECRET" ? "something" : given);
        std::printf("\n");
    }
    for (const std::string &unknown : unknown_variables(process_variable_names()))
        std::printf("  %s\n", unknown.c_str());
    Forced::parse(read_config(environment).algorithm);
}

void show_variables_as_markdown() {
    show_table(Group::setting,
               "| variable | default | values | what it does |\n|---|---|---|---|\n");
    show_table(Group::place, "\n| identity of this process | values | |\n|---|---|---|\n");
    show_table(Group::prefix, "\n| others begin with | values | |\n|---|---|---|\n");
}

}  // namespace vescomm::internal
