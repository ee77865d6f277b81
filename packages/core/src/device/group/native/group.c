// The native side of process groups: compiled once per machine, loaded once per process, called through koffi.
#define _GNU_SOURCE
#include "links.h"
#include "mpi.h"
