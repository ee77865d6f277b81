// The native side of process groups: compiled once per machine, loaded once per process, called through koffi.
#define _GNU_SOURCE
#include "mpi.h"
#include "shm.h"
