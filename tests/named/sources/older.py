# Stands between commands and a supervisor, and says that they are of another version.
import os, re, socket, sys, threading

place = sys.argv[1]
os.rename(place + "/socket", place + "/real")
listener = socket.socket(socket.AF_UNIX)
listener.bind(place + "/socket")
listener.listen()
print("stands", flush=True)

def hand_on(stream):
    letter = b""
    while not letter.endswith(b"\n"):
        part = stream.recv(65536)
        if not part:
            return
        letter += part
    real = socket.socket(socket.AF_UNIX)
    real.connect(place + "/real")
    real.sendall(re.sub(rb'"version":"[^"]*"', b'"version":"9.9.9"', letter, count=1))
    while True:
        part = real.recv(65536)
        if not part:
            break
        stream.sendall(part)
    stream.close()

while True:
    threading.Thread(target=hand_on, args=(listener.accept()[0],), daemon=True).start()
