// Complex functions for generated kernels that call them.
#pragma once
#include "prelude.h"

/* Loops over both cases vectorize; a branch would not. */
#define W_SELDOM(test) ((void)(test), 1)
#include "../../native/complex.h"
