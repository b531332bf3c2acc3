/* The end of mounts in the launcher's namespace. */
#ifndef MINIT_UNMOUNT_H
#define MINIT_UNMOUNT_H

/* Unmounts what an earlier try may have mounted there too. What a container holds goes from here alone. 0 or an errno. */
int unmount_all(const char *target);

#endif
