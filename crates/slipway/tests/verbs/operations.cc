// Each operation of verbs between two devices that one program has opened, with every byte looked at; and what is not offered,
// with the errno that is documented. Exits with 0 where all is so.

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <vector>

#include <arpa/inet.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#define CHECK(is_so)                                                                          \
  do {                                                                                        \
    if (!(is_so)) {                                                                           \
      std::fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #is_so, strerror(errno));  \
      std::exit(1);                                                                           \
    }                                                                                         \
  } while (0)

namespace {

constexpr size_t kLength = 300'000;
constexpr size_t kRoute = 40;
constexpr uint32_t kKey = 0x11111111;
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct End {
  ibv_context *context = nullptr;
  ibv_pd *domain = nullptr;
  ibv_comp_channel *channel = nullptr;
  ibv_cq *queue = nullptr;
  ibv_srq *shared = nullptr;
  ibv_mr *region = nullptr;
  ibv_gid gid{};
  // Where the bytes begin matters: whole pages are mapped, and the owner serves the rest.
  std::vector<unsigned char> memory = std::vector<unsigned char>(kLength + 1);

  explicit End(ibv_device *device) {
    CHECK((context = ibv_open_device(device)));
    CHECK((domain = ibv_alloc_pd(context)));
    CHECK((channel = ibv_create_comp_channel(context)));
    CHECK((queue = ibv_create_cq(context, 64, nullptr, channel, 0)));
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = 16;
    attributes.attr.max_sge = 2;
    CHECK((shared = ibv_create_srq(domain, &attributes)));
    CHECK((region = ibv_reg_mr(domain, memory.data(), memory.size(), kAccess)));
    CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
    CHECK(ibv_req_notify_cq(queue, 0) == 0);
  }

  ~End() {
    CHECK(ibv_dereg_mr(region) == 0);
    CHECK(ibv_destroy_srq(shared) == 0);
    CHECK(ibv_destroy_cq(queue) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dealloc_pd(domain) == 0);
    CHECK(ibv_close_device(context) == 0);
  }

  uint64_t at(size_t offset) const { return reinterpret_cast<uint64_t>(memory.data() + offset); }

  // Sleeps until the next completion.
  ibv_wc wait() {
    ibv_wc wc{};
    for (;;) {
      int found = ibv_poll_cq(queue, 1, &wc);
      CHECK(found >= 0);
      if (found == 1) return wc;
      ibv_cq *which = nullptr;
      void *context_of = nullptr;
      CHECK(ibv_get_cq_event(channel, &which, &context_of) == 0 && which == queue);
      ibv_ack_cq_events(queue, 1);
      CHECK(ibv_req_notify_cq(queue, 0) == 0);
    }
  }
};

ibv_qp *make(End &end, ibv_qp_type type, bool is_shared = false) {
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = attributes.recv_cq = end.queue;
  attributes.srq = is_shared ? end.shared : nullptr;
  attributes.cap = {16, 16, 4, 4, 256};
  attributes.qp_type = type;
  attributes.pd = end.domain;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  if (type != IBV_QPT_UD) attributes.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  if (type == IBV_QPT_RC)
    attributes.send_ops_flags |=
        IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  ibv_qp *pair = ibv_create_qp_ex(end.context, &attributes);
  CHECK(pair);
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = 1;
  init.qkey = kKey;
  init.qp_access_flags = kAccess;
  CHECK(ibv_modify_qp(pair, &init,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                          (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
  return pair;
}

ibv_ah_attr way(const End &to) {
  ibv_ah_attr way{};
  way.is_global = 1;
  way.port_num = 1;
  way.grh.dgid = to.gid;
  way.grh.hop_limit = 64;
  return way;
}

void ready(ibv_qp *pair, ibv_qp *peer, const End &to) {
  ibv_qp_attr attributes{};
  bool is_datagram = pair->qp_type == IBV_QPT_UD, is_reliable = pair->qp_type == IBV_QPT_RC;
  attributes.qp_state = IBV_QPS_RTR;
  attributes.ah_attr = way(to);
  attributes.dest_qp_num = peer->qp_num;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 4;
  int mask = IBV_QP_STATE;
  if (!is_datagram) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (is_reliable) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  CHECK(ibv_modify_qp(pair, &attributes, mask) == 0);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = attributes.rnr_retry = 7;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (is_reliable) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  CHECK(ibv_modify_qp(pair, &attributes, mask) == 0);
}

void receive(End &end, ibv_qp *pair, size_t at, size_t length) {
  ibv_sge piece{end.at(at), static_cast<uint32_t>(length), end.region->lkey};
  ibv_recv_wr request{}, *bad = nullptr;
  request.sg_list = &piece;
  request.num_sge = 1;
  if (pair->srq)
    CHECK(ibv_post_srq_recv(pair->srq, &request, &bad) == 0);
  else
    CHECK(ibv_post_recv(pair, &request, &bad) == 0);
}

void fill(End &end, unsigned char seed) {
  for (size_t at = 0; at < kLength; at++) end.memory[at] = static_cast<unsigned char>(seed + at % 251);
}

// Looks at every byte: those from `to` on are the sender's from `from` on, all others are as they were.
void compare(const std::vector<unsigned char> &before, const End &here, size_t to, const End &there, size_t from,
             size_t length) {
  for (size_t at = 0; at < kLength; at++) {
    bool is_new = at >= to && at < to + length;
    CHECK(here.memory[at] == (is_new ? there.memory[from + at - to] : before[at]));
  }
}

// Runs one request, built by the extended interface, and waits for its completion.
void request(End &end, ibv_qp *pair, ibv_wc_opcode done, const std::function<void(ibv_qp_ex *)> &build) {
  ibv_qp_ex *extended = ibv_qp_to_qp_ex(pair);
  ibv_wr_start(extended);
  extended->wr_id = 77;
  extended->wr_flags = IBV_SEND_SIGNALED;
  build(extended);
  CHECK(ibv_wr_complete(extended) == 0);
  ibv_wc wc = end.wait();
  CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == done && wc.wr_id == 77 && wc.qp_num == pair->qp_num);
}

void connected(End &one, End &other, ibv_qp_type type, bool is_shared) {
  ibv_qp *pair = make(one, type), *peer = make(other, type, is_shared);
  ready(pair, peer, other);
  ready(peer, pair, one);
  uint32_t lkey = one.region->lkey, rkey = other.region->rkey;
  // Within a page, across pages at odd places, and more than a ring has room for.
  for (size_t length : {0ul, 1ul, 200ul, 5'000ul, 280'001ul}) {
    for (size_t to : {0ul, 1'003ul, 8'192ul}) {
      const size_t from = 17;
      auto piece = [&](ibv_qp_ex *it) { ibv_wr_set_sge(it, lkey, one.at(from), static_cast<uint32_t>(length)); };
      fill(one, 1), fill(other, 100);
      auto before = other.memory;
      receive(other, peer, to, length);
      request(one, pair, IBV_WC_SEND, [&](ibv_qp_ex *it) { ibv_wr_send_imm(it, htonl(5)), piece(it); });
      ibv_wc wc = other.wait();
      CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == length);
      CHECK(wc.wc_flags & IBV_WC_WITH_IMM && ntohl(wc.imm_data) == 5 && wc.src_qp == pair->qp_num);
      compare(before, other, to, one, from, length);

      fill(one, 2);
      before = other.memory;
      request(one, pair, IBV_WC_RDMA_WRITE,
              [&](ibv_qp_ex *it) { ibv_wr_rdma_write(it, rkey, other.at(to)), piece(it); });
      if (type == IBV_QPT_RC) compare(before, other, to, one, from, length);

      fill(one, 3);
      receive(other, peer, 0, 0);
      request(one, pair, IBV_WC_RDMA_WRITE,
              [&](ibv_qp_ex *it) { ibv_wr_rdma_write_imm(it, rkey, other.at(to), htonl(6)), piece(it); });
      wc = other.wait();
      CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == length && ntohl(wc.imm_data) == 6);
      compare(before, other, to, one, from, length);

      if (type == IBV_QPT_RC) {
        fill(other, 4);
        before = one.memory;
        request(one, pair, IBV_WC_RDMA_READ, [&](ibv_qp_ex *it) { ibv_wr_rdma_read(it, rkey, other.at(to)), piece(it); });
        compare(before, one, from, other, to, length);
      }
    }
  }
  // Inline: the bytes are the request's from the start.
  char text[] = "inline";
  fill(other, 5);
  receive(other, peer, 10, 100);
  request(one, pair, IBV_WC_SEND, [&](ibv_qp_ex *it) {
    ibv_wr_send(it), ibv_wr_set_inline_data(it, text, 6);
    std::memset(text, 'x', 6);
  });
  CHECK(other.wait().byte_len == 6 && std::memcmp(&other.memory[10], "inline", 6) == 0);
  if (type == IBV_QPT_RC) {
    // Both words are aligned: the vector is, and so are these offsets.
    for (size_t at : {16ul, 16'384ul}) {
      uint64_t word = 40, before = 0;
      std::memcpy(&other.memory[at], &word, 8);
      auto piece = [&](ibv_qp_ex *it) { ibv_wr_set_sge(it, lkey, one.at(64), 8); };
      request(one, pair, IBV_WC_FETCH_ADD, [&](ibv_qp_ex *it) { ibv_wr_atomic_fetch_add(it, rkey, other.at(at), 2), piece(it); });
      std::memcpy(&before, &one.memory[64], 8);
      std::memcpy(&word, &other.memory[at], 8);
      CHECK(before == 40 && word == 42);
      for (uint64_t compared : {41ul, 42ul}) {
        request(one, pair, IBV_WC_COMP_SWAP,
                [&](ibv_qp_ex *it) { ibv_wr_atomic_cmp_swp(it, rkey, other.at(at), compared, 9), piece(it); });
        std::memcpy(&before, &one.memory[64], 8);
        std::memcpy(&word, &other.memory[at], 8);
        CHECK(before == 42 && word == (compared == 42 ? 9u : 42u));
      }
    }
  }
  CHECK(ibv_destroy_qp(pair) == 0 && ibv_destroy_qp(peer) == 0);
}

void datagrams(End &one, End &other) {
  ibv_qp *pair = make(one, IBV_QPT_UD), *peer = make(other, IBV_QPT_UD);
  ready(pair, peer, other);
  ready(peer, pair, one);
  ibv_ah_attr attributes = way(other);
  ibv_ah *ah = ibv_create_ah(one.domain, &attributes);
  CHECK(ah);
  for (size_t length : {1ul, 1'000ul, 4'096ul}) {
    fill(one, 6), fill(other, 7);
    auto before = other.memory;
    receive(other, peer, 64, length + kRoute);
    request(one, pair, IBV_WC_SEND, [&](ibv_qp_ex *it) {
      ibv_wr_send(it), ibv_wr_set_ud_addr(it, ah, peer->qp_num, kKey);
      ibv_wr_set_sge(it, one.region->lkey, one.at(0), static_cast<uint32_t>(length));
    });
    ibv_wc wc = other.wait();
    CHECK(wc.byte_len == length + kRoute && wc.src_qp == pair->qp_num && wc.wc_flags & IBV_WC_GRH);
    std::memcpy(&before[64], &other.memory[64], kRoute);
    compare(before, other, 64 + kRoute, one, 0, length);
    // The way back is in what came.
    ibv_ah *back = ibv_create_ah_from_wc(other.domain, &wc, reinterpret_cast<ibv_grh *>(&other.memory[64]), 1);
    CHECK(back && ibv_destroy_ah(back) == 0);
  }
  CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_qp(pair) == 0 && ibv_destroy_qp(peer) == 0);
}

template <typename T>
void refused(T *made, int error) {
  CHECK(made == nullptr && errno == error);
}

void not_offered(End &end, ibv_device *device) {
  // On-demand paging.
  refused(ibv_reg_mr(end.domain, end.memory.data(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
  ibv_device_attr_ex device_attributes{};
  CHECK(ibv_query_device_ex(end.context, nullptr, &device_attributes) == 0);
  CHECK(device_attributes.odp_caps.general_caps == 0 && device_attributes.tm_caps.max_num_tags == 0);
  // Raw packets, and extended reliable connections.
  for (ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND}) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = end.queue;
    attributes.qp_type = type;
    refused(ibv_create_qp(end.domain, &attributes), EOPNOTSUPP);
  }
  // Tag matching.
  ibv_srq_init_attr_ex tags{};
  tags.attr.max_wr = tags.attr.max_sge = 1;
  tags.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  tags.srq_type = IBV_SRQT_TM;
  tags.pd = end.domain;
  tags.cq = end.queue;
  tags.tm_cap.max_num_tags = 1;
  refused(ibv_create_srq_ex(end.context, &tags), EOPNOTSUPP);
  // Memory windows, memory of the device, time stamps.
  refused(ibv_alloc_mw(end.domain, IBV_MW_TYPE_1), EOPNOTSUPP);
  ibv_alloc_dm_attr memory{64, 0, 0};
  refused(ibv_alloc_dm(end.context, &memory), EOPNOTSUPP);
  ibv_cq_init_attr_ex stamps{};
  stamps.cqe = 1;
  stamps.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  refused(ibv_create_cq_ex(end.context, &stamps), EOPNOTSUPP);
  // A group that is none.
  ibv_qp *pair = make(end, IBV_QPT_UD);
  CHECK(ibv_attach_mcast(pair, &end.gid, 0) == EINVAL);
  CHECK(ibv_destroy_qp(pair) == 0);
  // DEVX is mlx5's own.
  mlx5dv_context_attr devx{};
  devx.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
  CHECK(!mlx5dv_is_supported(device));
  refused(mlx5dv_open_device(device, &devx), EOPNOTSUPP);
}

}  // namespace

int main() {
  int count = 0;
  ibv_device **devices = ibv_get_device_list(&count);
  CHECK(devices && count == 1);
  {
    End one(devices[0]), other(devices[0]);
    connected(one, other, IBV_QPT_RC, false);
    connected(one, other, IBV_QPT_RC, true);
    connected(one, other, IBV_QPT_UC, false);
    datagrams(one, other);
    not_offered(one, devices[0]);
  }
  ibv_free_device_list(devices);
  std::puts("all operations");
}
