/* The end of mounts in the launcher's namespace. */
#ifndef MINIT_UNMOUNT_H
#define MINIT_UNMOUNT_H

/* Unmounts every mount at `target`, those of earlier tries too; containers keep theirs. Returns 0 or an errno. */
int unmount_all(const char *target);

#endif
