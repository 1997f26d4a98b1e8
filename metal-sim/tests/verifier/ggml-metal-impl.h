// What ggml's header of this name provides: here nothing.
#pragma once
