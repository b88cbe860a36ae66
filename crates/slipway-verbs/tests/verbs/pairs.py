"""Queue pairs of two ends in one program, joined without a connection manager."""

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.qp import QPAttr


def connect(context, access, pair, peer):
    attributes = QPAttr(port_num=1)
    attributes.qp_access_flags = access
    pair.to_init(attributes)
    route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
    attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
    attributes.dest_qp_num = peer.qp_num
    attributes.path_mtu = 5
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
    attributes.min_rnr_timer, attributes.timeout = 12, 14
    attributes.retry_cnt = attributes.rnr_retry = 7
    attributes.rq_psn = attributes.sq_psn = 0
    pair.to_rts(attributes)
