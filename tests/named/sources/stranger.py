# Asks another user's supervisor for everything; prints its answer and what came with it.
import array, json, os, socket, sys

s = socket.socket(socket.AF_UNIX)
s.settimeout(30)
s.connect(sys.argv[1])
try:
    s.sendall(json.dumps({"version": "?", "ask": "Region"}).encode() + b"\n")
except BrokenPipeError:
    pass  # It does not even listen.
answer, came, _, _ = s.recvmsg(65536, 4096)
print(answer.decode(), "descriptors:", sum(len(data) // 4 for _, _, data in came))
