# Worker processes, forked and spawned, with queues and locks between them.
import multiprocessing as mp, os, sys

def square(n):
    with open("w-%03d" % n, "w") as f:
        f.write(str(n * n))
    return n * n

def add(counter, lock, queue, n):
    for _ in range(100):
        with lock:
            counter.value += 1
    queue.put(n)

if __name__ == "__main__":
    with mp.Pool(4) as pool:
        print(sum(pool.map(square, range(100), chunksize=3)))
    print(sum(int(open(name).read()) for name in os.listdir(".")))
    counter, lock, queue = mp.Value("i", 0, lock=False), mp.Lock(), mp.Queue()
    workers = [mp.Process(target=add, args=(counter, lock, queue, n)) for n in range(4)]
    [w.start() for w in workers]
    print(sorted(queue.get(timeout=30) for _ in workers))
    [w.join() for w in workers]
    print(counter.value, [w.exitcode for w in workers])
    for name in os.listdir("."):
        if int(name[2:]) % 2: os.unlink(name)
    print(len(os.listdir(".")))
