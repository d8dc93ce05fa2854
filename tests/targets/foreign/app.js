// Profiles of the packages for Node.js: app.js WRITER [PORT] writes them into the working directory.
"use strict";
const fs = require("fs");

function leaf(amount) {
    let sum = 0;
    for (let i = 0; i < amount; i++) sum += Math.sqrt(i) % 7;
    return sum;
}
function middle(amount) { return leaf(amount) + leaf(amount / 2); }
const kept = [];
function keep() { kept.push(new Array(20000).fill(kept.length)); }
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function work(ms) {
    const end = Date.now() + ms;
    while (Date.now() < end) {
        middle(300000);
        keep();
        await pause(5);
    }
}

async function datadog() {
    const pprof = require("@datadog/pprof");
    const save = (name, profile) => fs.writeFileSync(`datadog-${name}.pprof`, pprof.encodeSync(profile));
    pprof.heap.start(64 << 10, 32);
    pprof.time.start({ intervalMicros: 10000, durationMillis: 1000, withContexts: true, collectCpuTime: true });
    pprof.time.setContext({ request: "é 1" });
    await work(500);
    pprof.time.setContext({ request: "2" });
    await work(500);
    const labels = ({ context }) => (context ? { ...context.context, size: 12 } : {});
    save("wall-labels", pprof.time.stop(false, labels, ["request"]));
    save("heap", pprof.heap.profile());
    save("heap-labels", pprof.heap.profile(undefined, undefined, () => ({ kind: "object" })));
    pprof.heap.stop();
}

async function google() {
    const pprof = require("pprof");
    const save = async (name, profile) => fs.writeFileSync(`google-${name}.pprof`, await pprof.encode(profile));
    pprof.heap.start(64 << 10, 32);
    const stop = pprof.time.start(10000, "app", undefined, true);
    await work(700);
    await save("wall", stop());
    await save("heap", pprof.heap.profile());
}

async function pyroscope(port) {
    const client = require("@pyroscope/nodejs");
    const wall = { samplingDurationMs: 700, samplingIntervalMicros: 10000, collectCpuTime: true };
    const heap = { samplingIntervalBytes: 64 << 10, stackDepth: 32 };
    client.init({ appName: "app", serverAddress: `http://127.0.0.1:${port}`, flushIntervalMs: 700, wall, heap });
    client.start();
    await work(1000);
    await client.stop();
}

({ datadog, google, pyroscope })[process.argv[2]](process.argv[3]).then(() => process.exit(0));
