// The evictable objects of the devices, in the order in which they leave.
#pragma once

namespace gshm::core {

class Evictables {};

}  // namespace gshm::core
