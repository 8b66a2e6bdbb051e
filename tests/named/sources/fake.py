# A supervisor that is none: what it answers is nonsense, or a region that is none, or nothing.
import json, os, socket, subprocess, sys

place, husk = sys.argv[1:]
os.mkdir(place, 0o700)
listener = socket.socket(socket.AF_UNIX)
listener.bind(place + "/socket")
listener.listen()
joined = {"Joined": {"process": 1, "guard": False, "trap_only": False}}
joined = json.dumps(joined, separators=(",", ":")).encode()
memory = os.memfd_create("husk-region")
os.ftruncate(memory, 1 << 20)
for text, descriptors in [
    (b"nonsense\n", []),
    (joined + b"\n", [memory, memory]),
    (joined + b"\n", []),
    (b"", []),
    (b"{\"Look\":{}}\n", []),
]:
    words = [husk, "exec", "fake", "--", "true"]
    asker = subprocess.Popen(words, stderr=subprocess.PIPE)
    # It asks once more before it says what is wrong.
    for _ in range(2):
        stream, _ = listener.accept()
        stream.recv(65536)
        if text:
            socket.send_fds(stream, [text], descriptors)
        stream.close()
    said = asker.communicate(timeout=30)[1].decode()
    assert asker.returncode == 125 and said.count("\n") == 1, (asker.returncode, said)
    print(said, end="")
