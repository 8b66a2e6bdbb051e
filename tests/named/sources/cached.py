# Loads a memcached at a port with eight threads.
import socket, sys, threading
good = []
def load(number):
    peer = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=20)
    answers = peer.makefile('rb')
    for i in range(300):
        value = b'%d-%d' % (number, i) * (1 + i % 300)
        peer.sendall(b'set k%d 0 0 %d\r\n%b\r\n' % (number, len(value), value))
        assert answers.readline() == b'STORED\r\n'
        peer.sendall(b'get k%d\r\n' % number)
        assert int(answers.readline().split()[3]) == len(value)
        assert answers.read(len(value) + 2)[:-2] == value and answers.readline() == b'END\r\n'
    good.append(number)
threads = [threading.Thread(target=load, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print('loaded', len(good))
