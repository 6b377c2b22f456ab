# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""send, recv and recv_anysource."""

from .. import _core
from ..types import ANY_SOURCE
from .arrays import Copies, contiguous
from .calls import Calls, single
from .dtypes import moved
from .operation import Operation

_send = _core.Communicator.start_send_at
_receive = _core.Communicator.start_receive_at


class Message(Operation):
    is_message = True


class Received(Message):
    def source(self):
        self.wait()
        return self.link.sender(self.request)


# Also in callbacks, messages have the communicator of the group: a program may receive them elsewhere.
class Messages(Calls):
    def send(self, tensors, peer, tag=0):
        tensor = single(tensors, "send")
        data = contiguous(tensor)
        request = self._start_message(data, _send, self._peer(peer, "send"), tag)
        what = f"send to rank {peer}"
        return self._work(Message(self._main_link, request, what, data, [tensor], None), data.nbytes)

    def recv(self, tensors, peer, tag=0):
        return self._receive(tensors, self._peer(peer, "recv"), tag, f"recv from rank {peer}")

    def recv_anysource(self, tensors, tag=0):
        return self._receive(tensors, ANY_SOURCE, tag, "recv from any rank")

    def _receive(self, tensors, peer, tag, what):
        tensor = single(tensors, "recv")
        copies = Copies()
        data = copies.output(tensor)
        request = self._start_message(data, _receive, peer, tag)
        operation = Received(self._main_link, request, what, data, [tensor], copies)
        return self._work(operation, data.nbytes)

    def _start_message(self, data, call, peer, tag):
        arguments = (data.data_ptr(), data.numel(), moved(data.dtype), peer, tag)
        return self._main_link.start(data, call, *arguments, is_message=True)

    def _peer(self, peer, what):
        if not 0 <= peer < self._main_link.size:
            raise ValueError(
                f"vescomm: {what} names rank {peer}; the group has the ranks 0 to "
                f"{self._main_link.size - 1}"
            )
        return peer
