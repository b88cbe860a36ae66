// Queue pairs that are many, connected by librdmacm, and what they cost. Prints numbers alone.
//
//   scale serve PORT                accepts all, until it is killed
//   scale flows ADDRESS PORT N MS   writes of 64 KiB by N queue pairs: Jain's index, and Gb/s together
//   scale connects ADDRESS PORT N CLIENTS
//                                   connects and parts N times, by clients at once: connections a second
//   scale idle ADDRESS PORT N       holds N queue pairs until its standard input ends; prints when they are there
//   scale register BYTES            seconds to register and to release memory: for this node alone, and for others to write

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>

namespace {

constexpr uint32_t kBytes = 64 << 10;
constexpr uint32_t kWindow = 4;
constexpr int kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Where the other side may write.
struct Place {
  uint64_t address;
  uint32_t key;
};

[[noreturn]] void fail(const char *what) {
  std::perror(what);
  std::exit(1);
}

template <typename T>
T *made(T *it, const char *what) {
  if (!it) fail(what);
  return it;
}

void done(int result, const char *what) {
  if (result) fail(what);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Device {
  ibv_pd *domain = nullptr;
  ibv_cq *queue = nullptr;
  ibv_mr *region = nullptr;
  void *memory = nullptr;

  void open(ibv_context *context, int completions) {
    if (domain) return;
    domain = made(ibv_alloc_pd(context), "ibv_alloc_pd");
    queue = made(ibv_create_cq(context, completions, nullptr, nullptr, 0), "ibv_create_cq");
    memory = made(std::aligned_alloc(4096, kBytes), "aligned_alloc");
    std::memset(memory, 1, kBytes);
    region = made(ibv_reg_mr(domain, memory, kBytes, kRemote), "ibv_reg_mr");
  }

  void pair(rdma_cm_id *id, uint32_t requests) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = queue;
    attributes.cap = {requests, 1, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    done(rdma_create_qp(id, domain, &attributes), "rdma_create_qp");
  }
};

rdma_cm_event *await(rdma_event_channel *channel, rdma_cm_event_type kind) {
  rdma_cm_event *event = nullptr;
  done(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  if (event->event != kind) {
    std::fprintf(stderr, "event %s, status %d\n", rdma_event_str(event->event), event->status);
    std::exit(1);
  }
  return event;
}

void serve(const char *port) {
  rdma_event_channel *channel = made(rdma_create_event_channel(), "rdma_create_event_channel");
  rdma_cm_id *listener = nullptr;
  done(rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP), "rdma_create_id");
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  done(rdma_bind_addr(listener, reinterpret_cast<sockaddr *>(&any)), "rdma_bind_addr");
  done(rdma_listen(listener, 1024), "rdma_listen");
  std::puts("listens");
  std::fflush(stdout);
  Device device;
  for (rdma_cm_event *event = nullptr; rdma_get_cm_event(channel, &event) == 0;) {
    rdma_cm_id *id = event->id;
    rdma_cm_event_type kind = event->event;
    if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
      device.open(id->verbs, 16);
      device.pair(id, 1);
      Place place{reinterpret_cast<uint64_t>(device.memory), device.region->rkey};
      rdma_conn_param parameters{};
      parameters.private_data = &place;
      parameters.private_data_len = sizeof place;
      parameters.responder_resources = parameters.initiator_depth = 1;
      done(rdma_accept(id, &parameters), "rdma_accept");
    }
    rdma_ack_cm_event(event);
    if (kind == RDMA_CM_EVENT_DISCONNECTED) {
      rdma_destroy_qp(id);
      rdma_destroy_id(id);
    }
  }
}

struct Client {
  rdma_event_channel *channel = made(rdma_create_event_channel(), "rdma_create_event_channel");
  sockaddr_in to{};
  Device device;

  Client(const char *address, const char *port) {
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
    inet_pton(AF_INET, address, &to.sin_addr);
  }

  rdma_cm_id *connect(Place *place) {
    rdma_cm_id *id = nullptr;
    done(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
    done(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&to), 2000), "rdma_resolve_addr");
    rdma_ack_cm_event(await(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    done(rdma_resolve_route(id, 2000), "rdma_resolve_route");
    rdma_ack_cm_event(await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
    device.open(id->verbs, 4096);
    device.pair(id, kWindow);
    rdma_conn_param parameters{};
    parameters.responder_resources = parameters.initiator_depth = 1;
    parameters.retry_count = parameters.rnr_retry_count = 7;
    done(rdma_connect(id, &parameters), "rdma_connect");
    rdma_cm_event *event = await(channel, RDMA_CM_EVENT_ESTABLISHED);
    if (event->param.conn.private_data_len < sizeof *place) fail("no place");
    std::memcpy(place, event->param.conn.private_data, sizeof *place);
    rdma_ack_cm_event(event);
    return id;
  }

  void part(rdma_cm_id *id) {
    done(rdma_disconnect(id), "rdma_disconnect");
    rdma_ack_cm_event(await(channel, RDMA_CM_EVENT_DISCONNECTED));
    rdma_destroy_qp(id);
    done(rdma_destroy_id(id), "rdma_destroy_id");
  }
};

void flows(Client &client, int count, double seconds) {
  std::vector<rdma_cm_id *> ids(count);
  std::vector<Place> places(count);
  std::vector<double> bytes(count);
  for (int at = 0; at < count; at++) ids[at] = client.connect(&places[at]);
  auto write = [&](int at) {
    ibv_sge piece{reinterpret_cast<uint64_t>(client.device.memory), kBytes, client.device.region->lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.wr_id = static_cast<uint64_t>(at);
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = places[at].address;
    request.wr.rdma.rkey = places[at].key;
    done(ibv_post_send(ids[at]->qp, &request, &bad), "ibv_post_send");
  };
  double begun = now(), end = begun + seconds;
  for (uint32_t turn = 0; turn < kWindow; turn++)
    for (int at = 0; at < count; at++) write(at);
  double last = begun;
  while ((last = now()) < end) {
    ibv_wc wcs[64];
    int found = ibv_poll_cq(client.device.queue, 64, wcs);
    if (found < 0) fail("ibv_poll_cq");
    for (int one = 0; one < found; one++) {
      if (wcs[one].status) fail(ibv_wc_status_str(wcs[one].status));
      bytes[wcs[one].wr_id] += kBytes;
      write(static_cast<int>(wcs[one].wr_id));
    }
  }
  double sum = 0, squares = 0;
  for (double one : bytes) sum += one, squares += one * one;
  std::printf("%.4f %.3f\n", squares > 0 ? sum * sum / (count * squares) : 0, sum * 8 / 1e9 / (last - begun));
}

// Connects and parts `wanted` times in all, each client one after the other.
void connects(char **to, int wanted, int clients) {
  std::atomic<int> left{wanted};
  std::vector<std::thread> threads;
  double begun = now();
  for (int at = 0; at < clients; at++) {
    threads.emplace_back([&] {
      Client client(to[0], to[1]);
      Place place{};
      while (left-- > 0) client.part(client.connect(&place));
    });
  }
  for (auto &one : threads) one.join();
  std::printf("%.1f\n", wanted / (now() - begun));
}

void enroll(size_t length) {
  void *memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  std::memset(memory, 1, length);
  int count = 0;
  ibv_device **devices = made(ibv_get_device_list(&count), "ibv_get_device_list");
  if (count == 0) fail("no device");
  ibv_context *context = made(ibv_open_device(devices[0]), "ibv_open_device");
  ibv_pd *domain = made(ibv_alloc_pd(context), "ibv_alloc_pd");
  for (int access : {int{IBV_ACCESS_LOCAL_WRITE}, kRemote}) {
    double begun = now();
    ibv_mr *region = made(ibv_reg_mr(domain, memory, length, access), "ibv_reg_mr");
    double there = now();
    done(ibv_dereg_mr(region), "ibv_dereg_mr");
    std::printf("%.6f %.6f ", there - begun, now() - there);
  }
  std::puts("");
}

}  // namespace

int main(int count, char **words) {
  std::string what = count > 1 ? words[1] : "";
  if (what == "serve" && count == 3) {
    serve(words[2]);
  } else if (what == "register" && count == 3) {
    enroll(std::strtoull(words[2], nullptr, 10));
  } else if (what == "connects" && count == 6) {
    connects(words + 2, std::atoi(words[4]), std::atoi(words[5]));
  } else if (count >= 5) {
    Client client(words[2], words[3]);
    int wanted = std::atoi(words[4]);
    if (what == "flows" && count == 6) {
      flows(client, wanted, std::atof(words[5]) / 1000);
    } else {
      double begun = now();
      Place place{};
      for (int at = 0; at < wanted; at++) {
        client.connect(&place);
      }
      std::printf("%.1f\n", wanted / (now() - begun));
      std::fflush(stdout);
      while (what == "idle" && std::getchar() != EOF) {
      }
    }
  } else {
    return 2;
  }
}
