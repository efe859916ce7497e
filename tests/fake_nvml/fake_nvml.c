/* Answers as NVIDIA's management library would, from a text file that describes the cards.
 *
 * The file is named by FAKE_NVML_FILE and read again at every call, so that a card can change while it is watched. Its
 * lines are "key value"; the rest of the line is the value:
 *
 *     init.rc 18                    what nvmlInit returns; 0 where the line is missing
 *     count 2                       cards
 *     0.uuid GPU-…                  of card 0; likewise name, memory.used, utilization, power, …
 *     0.utilization.rc 4            what this call returns for card 0
 *     0.rc 15                       what every call returns for card 0
 *     0.mig 1                       MIG is on, with places for this many slices
 *     0.mig.0.uuid MIG-…            of the slice in place 0; a place without a uuid is empty
 *
 * What is not described is not supported (3). Each call's name is appended to the file's name with ".calls" behind.
 * Built with -DOLD_DRIVER the functions of newer drivers are missing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define MAX_CARDS 16
#define MAX_SLICES 8

typedef struct {
    char key[48];
} device;

static device cards[MAX_CARDS];
static device slices[MAX_CARDS][MAX_SLICES];

static int lookup(const char *key, char *value, size_t size) {
    const char *path = getenv("FAKE_NVML_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file)) {
        char *space = strchr(line, ' ');
        line[strcspn(line, "\n")] = 0;
        if (!space) continue;
        *space = 0;
        if (strcmp(line, key) == 0) {
            snprintf(value, size, "%s", space + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static long long number_or(const char *key, long long otherwise) {
    char text[128];
    return lookup(key, text, sizeof text) ? strtoll(text, NULL, 0) : otherwise;
}

static void note(const char *call) {
    const char *path = getenv("FAKE_NVML_FILE");
    char calls[4096];
    FILE *file;
    if (!path) return;
    snprintf(calls, sizeof calls, "%s.calls", path);
    if ((file = fopen(calls, "a"))) {
        fprintf(file, "%s\n", call);
        fclose(file);
    }
}

/* The code that a call on a device returns; its value where it is OK. */
static int answer(const device *which, const char *reading, char *text, size_t size) {
    char key[96];
    int code;
    if (!which) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "%s.rc", which->key);
    if ((code = (int)number_or(key, OK))) return code;
    snprintf(key, sizeof key, "%s.%s.rc", which->key, reading);
    if ((code = (int)number_or(key, OK))) return code;
    snprintf(key, sizeof key, "%s.%s", which->key, reading);
    return lookup(key, text, size) ? OK : NOT_SUPPORTED;
}

static int number(const device *which, const char *reading, unsigned long long *value) {
    char text[128];
    int code = answer(which, reading, text, sizeof text);
    if (code == OK) *value = strtoull(text, NULL, 0);
    return code;
}

static int small(const device *which, const char *reading, unsigned int *value) {
    unsigned long long wide;
    int code = number(which, reading, &wide);
    if (code == OK) *value = (unsigned int)wide;
    return code;
}

static int general(const char *key, char *text, unsigned int size) {
    return lookup(key, text, size) ? OK : NOT_SUPPORTED;
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    note(__func__);
    return (int)number_or("init.rc", OK);
}
int nvmlShutdown(void) { note(__func__); return OK; }

const char *nvmlErrorString(int code) {
    (void)code;
    return "Unlisted";
}
int nvmlSystemGetDriverVersion(char *text, unsigned int size) { return general("driver", text, size); }
int nvmlSystemGetNVMLVersion(char *text, unsigned int size) { return general("nvml", text, size); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = (int)number_or("cuda", 0);
    return *version ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    note(__func__);
    *count = (unsigned int)number_or("count", 0);
    return (int)number_or("count.rc", OK);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device **handle) {
    char key[32];
    if (index >= MAX_CARDS || index >= number_or("count", 0)) return INVALID_ARGUMENT;
    snprintf(cards[index].key, sizeof cards[index].key, "%u", index);
    *handle = &cards[index];
    snprintf(key, sizeof key, "%u.handle.rc", index);
    return (int)number_or(key, OK);
}
int nvmlDeviceGetMigDeviceHandleByIndex(device *card, unsigned int place, device **handle) {
    char key[80], uuid[96];
    unsigned int index = (unsigned int)atoi(card->key);
    snprintf(key, sizeof key, "%s.mig.%u.uuid", card->key, place);
    if (place >= MAX_SLICES || !lookup(key, uuid, sizeof uuid)) return NOT_FOUND;
    snprintf(slices[index][place].key, sizeof slices[index][place].key, "%u.mig.%u", index, place);
    *handle = &slices[index][place];
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device **handle) {
    char key[48], known[96];
    device *card;
    for (unsigned int index = 0; index < number_or("count", 0); index++) {
        nvmlDeviceGetHandleByIndex_v2(index, &card);
        for (unsigned int place = 0; place < MAX_SLICES; place++) {
            snprintf(key, sizeof key, "%u.mig.%u.uuid", index, place);
            if (lookup(key, known, sizeof known) && strcmp(known, uuid) == 0)
                return nvmlDeviceGetMigDeviceHandleByIndex(card, place, handle);
        }
    }
    return NOT_FOUND;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device *slice, device **card) {
    *card = &cards[atoi(slice->key)];
    return OK;
}
int nvmlDeviceGetUUID(device *which, char *text, unsigned int size) { return answer(which, "uuid", text, size); }
int nvmlDeviceGetName(device *which, char *text, unsigned int size) { return answer(which, "name", text, size); }
int nvmlDeviceGetMigMode(device *which, unsigned int *current, unsigned int *pending) {
    int code = small(which, "mig", current);
    if (code == OK) *current = *pending = *current > 0;
    return code;
}
int nvmlDeviceGetMaxMigDeviceCount(device *which, unsigned int *count) { return small(which, "mig", count); }
int nvmlDeviceGetGpuInstanceId(device *which, unsigned int *id) { return small(which, "gpu_instance", id); }
int nvmlDeviceGetComputeInstanceId(device *which, unsigned int *id) { return small(which, "compute_instance", id); }

/* The first version counts the driver's reserve as used, the second apart. */
int nvmlDeviceGetMemoryInfo(device *which, unsigned long long memory[3]) {
    unsigned long long used, total, reserved = 0;
    int code = number(which, "memory.used", &used);
    note(__func__);
    if (code == OK) code = number(which, "memory.total", &total);
    if (code != OK) return code;
    number(which, "memory.reserved", &reserved);
    memory[0] = total;
    memory[1] = total - used - reserved;
    memory[2] = used + reserved;
    return OK;
}
#ifndef OLD_DRIVER
typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} memory_v2;
int nvmlDeviceGetMemoryInfo_v2(device *which, memory_v2 *memory) {
    int code = number(which, "memory.used", &memory->used);
    note(__func__);
    if (memory->version != 0x02000028) return 25;
    if (code == OK) code = number(which, "memory.total", &memory->total);
    return code;
}
typedef struct {
    unsigned int version, sensor;
    int temperature;
} temperature_v1;
int nvmlDeviceGetTemperatureV(device *which, temperature_v1 *temperature) {
    note(__func__);
    return small(which, "temperature", (unsigned int *)&temperature->temperature);
}
int nvmlDeviceGetCurrentClocksEventReasons(device *which, unsigned long long *bits) {
    note(__func__);
    return number(which, "throttle", bits);
}
#endif
int nvmlDeviceGetTemperature(device *which, unsigned int sensor, unsigned int *celsius) {
    (void)sensor;
    note(__func__);
    return small(which, "temperature", celsius);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device *which, unsigned long long *bits) {
    note(__func__);
    return number(which, "throttle", bits);
}
int nvmlDeviceGetUtilizationRates(device *which, unsigned int rates[2]) {
    note(__func__);
    rates[1] = 0;
    return small(which, "utilization", &rates[0]);
}
int nvmlDeviceGetPowerUsage(device *which, unsigned int *milliwatts) {
    note(__func__);
    return small(which, "power", milliwatts);
}
int nvmlDeviceGetTotalEnergyConsumption(device *which, unsigned long long *millijoules) {
    note(__func__);
    return number(which, "energy", millijoules);
}
int nvmlDeviceGetClockInfo(device *which, unsigned int type, unsigned int *megahertz) {
    return type == 1 ? small(which, "clock", megahertz) : NOT_SUPPORTED;
}
int nvmlDeviceGetTotalEccErrors(device *which, unsigned int error, unsigned int counter, unsigned long long *count) {
    if (counter != 0) return INVALID_ARGUMENT;
    return number(which, error ? "ecc.uncorrected" : "ecc.corrected", count);
}
int nvmlDeviceGetPcieThroughput(device *which, unsigned int counter, unsigned int *kilobytes_per_s) {
    note(__func__);
    return small(which, counter ? "pcie.received" : "pcie.sent", kilobytes_per_s);
}
