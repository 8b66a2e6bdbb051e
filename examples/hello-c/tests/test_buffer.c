#include "check.h"

#include <string.h>

#include "hunt/buffer.h"

int main(void)
{
    struct buffer buffer;
    buffer_init(&buffer);
    CHECK(strcmp(buffer_string(&buffer), "") == 0);
    for (int at = 0; at < 1000; at++)
        CHECK(buffer_add_string(&buffer, "leveret ") == 0);
    CHECK(buffer.length == 8000);
    CHECK(memcmp(buffer_string(&buffer) + 7992, "leveret ", 9) == 0);
    buffer_clear(&buffer);
    CHECK(buffer.length == 0 && buffer.capacity >= 8000);
    buffer_free(&buffer);
    CHECK(buffer.bytes == NULL);
    return 0;
}
