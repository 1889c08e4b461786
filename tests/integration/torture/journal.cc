#include "integration/torture/journal.h"

namespace gshm::core::torture {

std::string folder_of(unsigned user) {
    return "u" + std::to_string(user);
}

std::string name_of(unsigned user, unsigned slot) {
    return folder_of(user) + "/" + (slot == kTemporary ? "temporary" : "s" + std::to_string(slot));
}

std::string describe(const Version& version) {
    if (!version.exists()) return "nothing";
    return std::to_string(version.bytes) + " bytes of seed " + std::to_string(version.seed) + ", attribute " +
           std::to_string(version.attribute);
}

std::string settle(Journal& journal, const Look& look) {
    if (!journal.in_flight) return {};
    const Step step = journal.step;
    if (step.loose) {
        if (auto wrong = look.remove(step.a); !wrong.empty()) return wrong;
        journal.step.a_before = {};
        journal.finish(false);
        return {};
    }
    Version a, b;
    if (auto wrong = look.actual(step.a, &a); !wrong.empty()) return wrong;
    if (auto wrong = look.actual(step.b, &b); !wrong.empty()) return wrong;
    if (a == step.a_after && b == step.b_after) {
        journal.finish(true);
    } else if (a == step.a_before && b == step.b_before) {
        journal.finish(false);
    } else {
        return "an interrupted step is neither done nor undone: " + std::to_string(step.a) + " was " +
               describe(step.a_before) + ", should be " + describe(step.a_after) + ", is " + describe(a) + "; " +
               std::to_string(step.b) + " was " + describe(step.b_before) + ", should be " + describe(step.b_after) +
               ", is " + describe(b);
    }
    return {};
}

}  // namespace gshm::core::torture
