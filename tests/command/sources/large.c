/* A large program: says its name, whether its bytes are the right ones, and whose its code is. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define CODE_BYTES 6291456

__asm__(".text\n.globl filler\nfiller: .skip 6291456, 0x90\n");
extern const unsigned char filler[CODE_BYTES];
static const unsigned char constants[1 << 20] = {[0] = 1, [5000] = 2, [(1 << 20) - 1] = 3};
static unsigned char data[300001] = {[0] = 4, [300000] = 5};
static unsigned char empty[200000];

static const char *sound(void)
{
    for (int i = 0; i < CODE_BYTES; i++)
        if (filler[i] != 0x90)
            return "code";
    long sum = 0;
    for (int i = 0; i < (int)sizeof constants; i++)
        sum += constants[i];
    if (sum != 6 || constants[5000] != 2)
        return "constants";
    for (int i = 0; i < (int)sizeof data; i++)
        sum += data[i];
    if (sum != 15)
        return "data";
    for (int i = 0; i < (int)sizeof empty; i++)
        if (empty[i])
            return "zeros";
    memset(data, 7, sizeof data);
    memset(empty, 7, sizeof empty);
    return "sound";
}

int main(void)
{
    char line[600];
    const char *whose = "?";
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char flags[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, flags) != 3)
            continue;
        uintptr_t here = (uintptr_t)filler + CODE_BYTES / 2;
        if (start <= here && here < end && !strcmp(flags, "r-xp"))
            whose = strstr(line, "husk-region") ? "gathered" : "file";
    }
    printf("%s %s %s\n", NAME, sound(), whose);
    return 0;
}
