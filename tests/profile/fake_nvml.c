/* A stand-in for the NVIDIA driver library, for tests on machines without a GPU: compile as libnvidia-ml.so.1 and put
 * it on LD_LIBRARY_PATH. Values come from the environment, one per GPU with commas between; a GPU without a value does
 * not support the question, and whatever is not defined here is missing as in an old driver.
 *   FAKE_NVML_NAMES (their number is the number of GPUs), FAKE_NVML_COMPUTE, FAKE_NVML_MEMORY (per cent),
 *   FAKE_NVML_POWER (milliwatts), FAKE_NVML_CLOCK (MHz); FAKE_NVML_BROKEN=1: the driver does not answer at all. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9 };

/* The text for one GPU, copied to out; 0 if there is none. */
static int entry(const char *variable, unsigned gpu, char *out, unsigned size) {
    const char *at = getenv(variable);
    for (; at && gpu > 0; gpu--) {
        at = strchr(at, ',');
        if (at) at++;
    }
    if (!at || !*at) return 0;
    unsigned length = (unsigned)strcspn(at, ",");
    if (length == 0 || length >= size) return 0;
    memcpy(out, at, length);
    out[length] = 0;
    return 1;
}

static int number(const char *variable, void *gpu, unsigned *value) {
    char text[32];
    if (!entry(variable, (unsigned)(uintptr_t)gpu - 1, text, sizeof text)) return NOT_SUPPORTED;
    *value = (unsigned)strtoul(text, NULL, 10);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return getenv("FAKE_NVML_BROKEN") ? DRIVER_NOT_LOADED : OK;
}

int nvmlShutdown(void) { return OK; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    char name[96];
    for (*count = 0; entry("FAKE_NVML_NAMES", *count, name, sizeof name);) ++*count;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) {
    char name[96];
    if (!entry("FAKE_NVML_NAMES", index, name, sizeof name)) return INVALID_ARGUMENT;
    *gpu = (void *)(uintptr_t)(index + 1);
    return OK;
}

int nvmlDeviceGetName(void *gpu, char *name, unsigned size) {
    return entry("FAKE_NVML_NAMES", (unsigned)(uintptr_t)gpu - 1, name, size) ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetUUID(void *gpu, char *uuid, unsigned size) {
    snprintf(uuid, size, "GPU-%04x-test", (unsigned)(uintptr_t)gpu - 1);
    return OK;
}

int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *total_free_used) {
    (void)gpu;
    total_free_used[0] = total_free_used[1] = 16ULL << 30;
    total_free_used[2] = 0;
    return OK;
}

int nvmlDeviceGetUtilizationRates(void *gpu, unsigned *compute_and_memory) {
    int failed = number("FAKE_NVML_COMPUTE", gpu, compute_and_memory);
    return failed ? failed : number("FAKE_NVML_MEMORY", gpu, compute_and_memory + 1);
}

int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts) { return number("FAKE_NVML_POWER", gpu, milliwatts); }

int nvmlDeviceGetClockInfo(void *gpu, int type, unsigned *mhz) {
    (void)type;
    return number("FAKE_NVML_CLOCK", gpu, mhz);
}
