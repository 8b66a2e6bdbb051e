/* A tree of files, in the order of their names. */
#ifndef HUNT_WALK_H
#define HUNT_WALK_H

#define WALK_DEPTH_MAX 64

/* Returns 0 to go on; anything else ends the walk and is its result. */
typedef int walk_visit(const char *path, void *context);

/* Calls `visit` for every regular file at or below `path`; -1 with errno when a folder cannot be
 * read or lies too deep. Symbolic links are not followed. */
int walk(const char *path, walk_visit *visit, void *context);

#endif
