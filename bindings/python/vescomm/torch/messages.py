# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""send, recv and recv_anysource."""

from .. import _core
from .arrays import Copies, contiguous, require_host
from .calls import Calls, single
from .dtypes import moved
from .operation import Operation

_send = _core.Communicator.start_send_at
_receive = _core.Communicator.start_receive_at


class Message(Operation):
    is_message = True

    def __init__(self, link, request, what, tensors, result, then, source=None):
        super().__init__(link, request, what, tensors, result, then)
        self._sender = source

    def source(self):
        if self._sender is None:
            return super().source()
        self.wait()
        return self._sender()


class Messages(Calls):
    def send(self, tensors, peer, tag=0):
        tensor = single(tensors, "send")
        data = contiguous(tensor)
        require_host(data)
        request = self._link.start(
            _send, data.data_ptr(), data.numel(), moved(data.dtype), self._peer(peer, "send")
        )
        what = f"send to rank {peer}"
        return self._work(Message(self._link, request, what, data, [tensor], None), data.nbytes)

    def recv(self, tensors, peer, tag=0):
        tensor = single(tensors, "recv")
        copies = Copies()
        data = copies.output(tensor)
        request = self._link.start(
            _receive, data.data_ptr(), data.numel(), moved(data.dtype), self._peer(peer, "recv")
        )
        what = f"recv from rank {peer}"
        operation = Message(self._link, request, what, data, [tensor], copies, lambda: peer)
        return self._work(operation, data.nbytes)

    def _peer(self, peer, what):
        if not 0 <= peer < self._link.size:
            raise ValueError(
                f"vescomm: {what} names rank {peer}; the group has the ranks 0 to "
                f"{self._link.size - 1}"
            )
        return peer

    def recv_anysource(self, tensors, tag=0):
        raise NotImplementedError("vescomm: receives from any source are not there yet")
