/*
 * What goes over many entries: a directory page by page, a tree with its content, the removal of a tree. Memory is
 * bounded whatever the tree: names are not gathered, open directories are, up to the depth that a path can have.
 */
#ifndef MINIT_FILE_TREE_H
#define MINIT_FILE_TREE_H

#include <stdint.h>

#include "place.h"

/* All answer `id` with entries and give an errno. */
int file_tree_list(uint32_t id, int dir, uint64_t offset, uint64_t length, uint64_t *total);
/* `start` is a directory. */
int file_tree_walk(uint32_t id, int start, bool with_others);
/* Removes the directory `place` with all that is in it. */
int file_tree_remove(uint32_t id, const struct place *place, uint64_t *removed);
/* One entry of a walk or a list; nothing where it is gone. */
void file_tree_entry(uint32_t id, int dir, const char *name);

#endif
