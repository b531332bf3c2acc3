/*
 * Network namespaces of instances and containers, by rtnetlink. The calls wait for the kernel's network lock, so the
 * launcher runs them in a child that shares its descriptor table: the descriptors made there are the launcher's own.
 *
 * With a range of ids each has a user namespace above it, for a container to join: only who is root there may mount
 * /sys of that network and bind its low ports. Function instances take the network alone.
 */
#ifndef MINIT_NETNS_H
#define MINIT_NETNS_H

#include <stdint.h>

enum { NETNS_STEP_BYTES = 48 };

struct netns_request {
  uint32_t first_id;         /* of the user namespace, 0 for none */
  uint32_t address, gateway; /* host byte order */
  uint8_t prefix_len;
  const char *host_ifname, *bridge;
};

/* Shared between the launcher and the child. */
struct netns_result {
  int error;   /* errno, 0 when done */
  int fd;      /* -1 unless a namespace is there */
  int user_fd; /* -1 unless a user namespace is */
  char step[NETNS_STEP_BYTES];
};

/*
 * Makes a namespace with lo, eth0 and a default route, its host end an isolated port of the bridge. All or nothing.
 * An older port of that bridge with the same name is replaced; its namespace stays, without a link.
 */
void netns_add(const struct netns_request *request, struct netns_result *result);
/* Deletes the link. One that is gone already is no error. */
void netns_del(const char *host_ifname, struct netns_result *result);

#endif
