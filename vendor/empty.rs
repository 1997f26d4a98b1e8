//! Empty on purpose: the library of the pin and of its stubs. Nothing compiles it.
