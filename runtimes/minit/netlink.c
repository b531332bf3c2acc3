#define _GNU_SOURCE
#include "netlink.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

void *message_begin(struct message *m, uint16_t type, uint16_t flags, size_t body_len) {
  *m = (struct message){0};
  m->head.nlmsg_type = type;
  m->head.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
  m->head.nlmsg_len = NLMSG_LENGTH((uint32_t)body_len);
  return NLMSG_DATA(&m->head);
}

struct rtattr *message_put(struct message *m, uint16_t type, const void *value, size_t len) {
  struct rtattr *attribute = (struct rtattr *)(m->bytes + NLMSG_ALIGN(m->head.nlmsg_len));
  attribute->rta_type = type;
  attribute->rta_len = (uint16_t)RTA_LENGTH(len);
  if (len > 0) memcpy(RTA_DATA(attribute), value, len);
  m->head.nlmsg_len = NLMSG_ALIGN(m->head.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
  return attribute;
}

void message_put_text(struct message *m, uint16_t type, const char *text) { message_put(m, type, text, strlen(text) + 1); }
void message_put_u32(struct message *m, uint16_t type, uint32_t value) { message_put(m, type, &value, sizeof value); }
struct rtattr *message_nest(struct message *m, uint16_t type) { return message_put(m, type, NULL, 0); }

void message_end_nest(struct message *m, struct rtattr *attribute) {
  attribute->rta_len = (uint16_t)(m->bytes + m->head.nlmsg_len - (uint8_t *)attribute);
}

int netlink_open(int protocol) { return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol); }

int netlink_ask(int fd, struct message *m) {
  if (send(fd, m->bytes, m->head.nlmsg_len, 0) < 0) return errno;
  /* The acknowledgement of a refusal repeats the request. */
  struct {
    struct message answer;
    struct message repeated;
  } room;
  ssize_t n;
  do n = recv(fd, &room, sizeof room, 0);
  while (n < 0 && errno == EINTR);
  if (n < 0) return errno;
  struct message *answer = &room.answer;
  if ((size_t)n < NLMSG_LENGTH(sizeof(struct nlmsgerr)) || answer->head.nlmsg_type != NLMSG_ERROR) return EPROTO;
  return -((struct nlmsgerr *)NLMSG_DATA(&answer->head))->error;
}
