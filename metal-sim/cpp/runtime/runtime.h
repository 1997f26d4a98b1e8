// What a transformed kernel needs from the simulator: lanes, barriers, threadgroup memory, kernel registration.
//
// Kernel units must be compiled with
//   -fno-strict-aliasing      MSL code reinterprets memory freely (float4 * over char *), which ISO C++ forbids
//   -ffp-contract=off         a*b + c must round twice unless the kernel says fma()
//   -fexcess-precision=16     half arithmetic must round after every operation
// so that the compiler keeps MSL's meaning.
#pragma once

#include "kernel.h"
#include "lane.h"
#include "lockstep.h"
#include "threadgroup_array.h"
