"""Steps of a program of Redis (appendfsync always), one INCR each; go: for ever, look: how many."""
import socket, subprocess, sys, time

verb, tree = sys.argv[1:]
PATH = "/tmp/redis.sock"
server = subprocess.Popen(
    ["redis-server", "--port", "0", "--unixsocket", PATH, "--dir", tree, "--save", "",
     "--appendonly", "yes", "--appendfsync", "always", "--loglevel", "warning"],
    stdout=subprocess.DEVNULL)


def connect():
    for _ in range(3000):
        try:
            client = socket.socket(socket.AF_UNIX)
            client.connect(PATH)
            client.sendall(b"PING\r\n")
            # It says LOADING before that.
            if client.recv(100).startswith(b"+PONG"):
                return client
        except OSError:
            pass
        client.close()
        time.sleep(0.01)
    sys.exit("redis-server does not answer")


client = connect()
replies = client.makefile("rb")
if verb == "look":
    client.sendall(b"GET steps\r\n")
    length = int(replies.readline()[1:])
    print(int(replies.readline()) if length > 0 else 0)
    client.sendall(b"SHUTDOWN NOSAVE\r\n")
    server.wait()
    sys.exit()
while True:
    client.sendall(b"INCR steps\r\n")
    print(int(replies.readline()[1:]), flush=True)
