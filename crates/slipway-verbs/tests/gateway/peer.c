// An ordinary RDMA peer: peer ADDRESS PORT. It knows nothing of labs.
//
// Its answer to a connection has the address and the key of its buffer. It sends back what it receives, with the same immediate
// data. A message with immediate data 77 names memory, into which it writes its buffer's first bytes, with immediate data 78.
#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER = 4096, RECEIVES = 8, ROOM = 64 };

struct advert {
  uint64_t address;
  uint32_t key;
  uint32_t size;
};

static char memory[BUFFER + RECEIVES * ROOM] __attribute__((aligned(4096)));

static int receive(struct rdma_cm_id *id, struct ibv_mr *mr, uintptr_t slot) {
  return rdma_post_recv(id, (void *)slot, memory + BUFFER + slot * ROOM, ROOM, mr);
}

static int answer(struct rdma_cm_id *id, struct ibv_mr *mr, struct ibv_wc *wc) {
  char *place = memory + BUFFER + wc->wr_id * ROOM;
  struct ibv_sge sge = {.addr = (uintptr_t)place, .length = wc->opcode == IBV_WC_RECV ? wc->byte_len : 0, .lkey = mr->lkey};
  struct ibv_send_wr request = {.wr_id = wc->wr_id, .sg_list = &sge, .num_sge = sge.length ? 1 : 0, .opcode = IBV_WR_SEND}, *bad;
  if (wc->wc_flags & IBV_WC_WITH_IMM) {
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = wc->imm_data;
    if (wc->imm_data == htonl(77)) {
      struct advert advert;
      memcpy(&advert, place, sizeof advert);
      sge.addr = (uintptr_t)memory;
      sge.length = ntohl(advert.size);
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      request.imm_data = htonl(78);
      request.wr.rdma.remote_addr = be64toh(advert.address);
      request.wr.rdma.rkey = ntohl(advert.key);
    }
  }
  return ibv_post_send(id->qp, &request, &bad);
}

// Serves one connection until it ends.
static void serve(struct rdma_cm_id *id) {
  int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  struct ibv_mr *mr = ibv_reg_mr(id->pd, memory, sizeof memory, all);
  struct advert advert = {.address = htobe64((uintptr_t)memory), .key = htonl(mr->rkey), .size = htonl(BUFFER)};
  struct rdma_conn_param parameters = {.private_data = &advert, .private_data_len = sizeof advert, .responder_resources = 4,
                                       .initiator_depth = 3, .rnr_retry_count = 7};
  struct ibv_wc wc;
  for (uintptr_t slot = 0; slot < RECEIVES; slot++) receive(id, mr, slot);
  if (rdma_accept(id, &parameters)) perror("rdma_accept");
  for (;;) {
    struct pollfd event = {.fd = id->channel->fd, .events = POLLIN};
    if (poll(&event, 1, 1) > 0) break;
    while (ibv_poll_cq(id->recv_cq, 1, &wc) > 0)
      if (wc.status == IBV_WC_SUCCESS && (answer(id, mr, &wc) || receive(id, mr, wc.wr_id))) perror("answer");
    while (ibv_poll_cq(id->send_cq, 1, &wc) > 0)
      if (wc.status) fprintf(stderr, "peer: %s\n", ibv_wc_status_str(wc.status));
  }
  rdma_disconnect(id);
  rdma_dereg_mr(mr);
  rdma_destroy_ep(id);
}

int main(int count, char **words) {
  if (count != 3) return 2;
  struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *found;
  struct ibv_qp_init_attr attributes = {.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
                                        .sq_sig_all = 1};
  struct rdma_cm_id *listener, *id;
  if (rdma_getaddrinfo(words[1], words[2], &hints, &found) || rdma_create_ep(&listener, found, NULL, &attributes) ||
      rdma_listen(listener, 8)) {
    perror("peer");
    return 1;
  }
  while (!rdma_get_request(listener, &id)) serve(id);
  perror("rdma_get_request");
  return 1;
}
