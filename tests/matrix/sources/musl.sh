# Static programs of another C library; its detached threads unmap the stack they run on.
cat > p.c <<'X'
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static void *work(void *name) { FILE *f = fopen(name, "w"); fputs("from a thread", f); fclose(f); return 0; }
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, work, "made");
    pthread_join(t, 0);
    if (!fork()) { execlp("cat", "cat", "made", (char *)0); return 1; }
    int status;
    wait(&status);
    printf("\n%d\n", status);
    return 0;
}
X
musl-gcc -static -O1 p.c -o p
./p
rm p
cat > detached.c <<'X'
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
static atomic_int ended;
static void *work(void *name) { (void)name; ended++; return 0; }
int main(void) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 200; i++) {
        pthread_t t;
        while (pthread_create(&t, &detached, work, 0)) usleep(1000);
        if (i % 20 == 0) usleep(1000);
    }
    for (int i = 0; i < 10000 && ended < 200; i++) usleep(1000);
    usleep(10000);
    printf("%d\n", ended);
    return 0;
}
X
musl-gcc -static -O1 detached.c -o p
./p
rm p
