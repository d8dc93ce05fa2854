import sys
def leaf():
    print("ready", flush=True)
    while True: pass
source = "\n".join("def f%d(): f%d()" % (i, i + 1) for i in range(int(sys.argv[1]) - 3))
scope = {}
exec(source, scope)
scope["f%d" % (int(sys.argv[1]) - 3)] = leaf
scope["f0"]()
